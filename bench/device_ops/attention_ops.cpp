// Attention of a step on a device: to all rows, to selected ones, and to these and what groups have
// left.
#include <cmath>
#include <optional>

#include "device_ops/group_index.hpp"
#include "device_ops/host_place.hpp"
#include "device_ops/layer_rows.hpp"
#include "device_ops/questions.hpp"
#include "kernels/expected.hpp"
#include "terrace/kernels/attention.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t output_floats = measured_layer.query_heads * measured_layer.head_dim;

enum class Entries : std::uint8_t { all, selected, with_estimates };

/// A layer's attention, made in any place.
struct LayerAttention {
  LayerSample rows;
  Entries entries;
  std::optional<GroupIndex> groups;

  static Result<LayerAttention> create(std::size_t tokens, Entries entries) {
    TERRACE_ASSIGN(LayerSample rows, LayerSample::create(tokens));
    std::optional<GroupIndex> groups;
    if (entries == Entries::with_estimates) {
      TERRACE_ASSIGN(groups, GroupIndex::create(rows));
    }
    return LayerAttention{std::move(rows), entries, std::move(groups)};
  }

  /// Rows that are attended to.
  [[nodiscard]] std::size_t count() const {
    return entries == Entries::all ? rows.tokens() : rows.selected();
  }
  [[nodiscard]] std::size_t bytes() const {
    return count() * measured_layer.token_bytes() + (groups ? groups->bytes_of_rests() : 0);
  }

  template <typename Place>
  Result<DecodeAttention> in(Place& place) const {
    DecodeAttention op{.shape = measured_layer,
                       .scale = 1 / std::sqrt(static_cast<float>(measured_layer.head_dim))};
    TERRACE_ASSIGN(op.query, place.copy_of(layer_queries()));
    TERRACE_ASSIGN(op.output, place.template room_for<float>(output_floats));
    const std::size_t most = count() + (groups ? groups->groups() : 0);
    TERRACE_ASSIGN(op.scratch,
                   place.template room_for<float>(attention_scratch_floats(measured_layer, most)));
    TERRACE_ASSIGN(std::byte* const memory, place.copy_of(rows.memory()));
    op.resident.block_tokens = LayerSample::block_tokens;
    if (entries == Entries::all) {
      op.window = {0, rows.tokens()};
      TERRACE_ASSIGN(op.resident.blocks, place.copy_of(rows.blocks(memory)));
      return op;
    }
    TERRACE_ASSIGN(op.selected, place.copy_of(rows.selected_rows(memory)));
    TERRACE_ASSIGN(op.selected_count, place.copy_of(rows.counts()));
    op.selected_stride = rows.selected();
    if (groups) {
      TERRACE_ASSIGN(op.rests, groups->rests_in(place, rows.ids()));
    }
    return op;
  }
};

class AttentionOp final : public MeasuredOp {
 public:
  static Result<std::shared_ptr<MeasuredOp>> create(std::shared_ptr<MeasuredDevice> device,
                                                    std::size_t tokens, Entries entries) {
    TERRACE_ASSIGN(const LayerAttention attention, LayerAttention::create(tokens, entries));
    HostPlace host;
    TERRACE_ASSIGN(const DecodeAttention on_host, attention.in(host));
    Serial threads;
    kernels::host::decode_attention(on_host, threads);
    TERRACE_ASSIGN(const DecodeAttention op, attention.in(*device));
    return std::make_shared<AttentionOp>(
        std::move(device), op, std::vector(on_host.output, on_host.output + output_floats),
        attention.bytes());
  }

  AttentionOp(std::shared_ptr<MeasuredDevice> device, const DecodeAttention& op,
              std::vector<float> expected, std::size_t bytes)
      : MeasuredOp(std::move(device), bytes), op_(op), expected_(std::move(expected)) {}

  [[nodiscard]] Result<Ticket> enqueue() override {
    return device().ops().decode_attention(device().queue(), Phase::attend, op_);
  }
  [[nodiscard]] Status verify() override {
    std::vector<float> outputs(expected_.size());
    TERRACE_TRY(device().take(op_.output, std::span(outputs)));
    const bool estimates = op_.rests.ids != nullptr;
    return expect_near(outputs, expected_, estimates ? 1e-3F : 1e-4F);
  }

 private:
  DecodeAttention op_;
  std::vector<float> expected_;
};

}  // namespace

std::vector<Question> attention_op_questions(const DeviceSettings& settings) {
  std::vector<Question> all;
  for (const auto& [name, entries] : {std::pair{"attend", Entries::all},
                                      {"attend_selected", Entries::selected},
                                      {"attend_with_estimates", Entries::with_estimates}}) {
    const auto make = [entries = entries](std::shared_ptr<MeasuredDevice> device,
                                          std::size_t tokens) {
      return AttentionOp::create(std::move(device), tokens, entries);
    };
    for (Question& question : questions_of_op(name, settings, make)) {
      all.push_back(std::move(question));
    }
  }
  return all;
}

}  // namespace terrace::bench
