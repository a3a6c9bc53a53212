// Selections of a step on a device: by codes, and by signs.
#include "device_ops/group_index.hpp"
#include "device_ops/host_place.hpp"
#include "device_ops/layer_rows.hpp"
#include "device_ops/questions.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/kernels/select.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t code_chunk_tokens = 256;  // as policies have them
constexpr PqShape code_shape{.subspaces = 2, .bits = 6};

/// A choice of a tenth of the tokens.
template <typename Place>
Result<SelectCommon> choice_in(Place& place, std::size_t tokens) {
  const std::size_t count = tokens / 10;
  SelectCommon common{.shape = measured_layer,
                      .candidates = {0, tokens},
                      .count = {.mean = count},
                      .id_stride = count};
  TERRACE_ASSIGN(common.query, place.copy_of(layer_queries()));
  TERRACE_ASSIGN(common.ids,
                 place.template room_for<std::uint32_t>(measured_layer.kv_heads * count));
  TERRACE_ASSIGN(common.id_count, place.template room_for<std::uint32_t>(measured_layer.kv_heads));
  TERRACE_ASSIGN(common.scratch,
                 place.template room_for<float>(selection_scratch_floats(measured_layer, tokens)));
  return common;
}

struct CodeSelection {
  static constexpr auto on_host = &kernels::host::pq_select;
  static constexpr auto on_device = &Ops::pq_select;
  std::size_t tokens;

  static Result<CodeSelection> create(std::size_t tokens) { return CodeSelection{tokens}; }
  [[nodiscard]] std::size_t bytes() const {
    return tokens * measured_layer.kv_heads * code_shape.subspaces;
  }

  template <typename Place>
  Result<PqSelect> in(Place& place) const {
    PqSelect op{.pq = code_shape};
    TERRACE_ASSIGN(op.common, choice_in(place, tokens));
    const std::size_t floats =
        measured_layer.kv_heads * code_shape.centroids() * measured_layer.head_dim;
    TERRACE_ASSIGN(const float* const centroids, place.copy_of(normal_numbers(floats, 9)));
    std::vector<std::byte> codes(bytes());
    Rng rng(11);
    for (std::byte& code : codes) code = static_cast<std::byte>(rng.below(code_shape.centroids()));
    TERRACE_ASSIGN(std::byte* const memory, place.copy_of(codes));
    const std::vector<std::byte*> chunks = cut_chunks(
        {memory, codes.size()}, code_chunk_tokens * measured_layer.kv_heads * code_shape.subspaces);
    TERRACE_ASSIGN(std::byte* const* const table, place.copy_of(chunks));
    op.index = {.fixed = reinterpret_cast<const std::byte*>(centroids),
                .chunks = table,
                .chunk_tokens = code_chunk_tokens,
                .token_count = tokens};
    return op;
  }
};

struct SignSelection {
  static constexpr auto on_host = &kernels::host::sign_select;
  static constexpr auto on_device = &Ops::sign_select;
  std::size_t tokens;
  GroupIndex index;

  static Result<SignSelection> create(std::size_t tokens) {
    TERRACE_ASSIGN(const LayerSample rows, LayerSample::create(tokens));
    TERRACE_ASSIGN(GroupIndex index, GroupIndex::create(rows));
    return SignSelection{tokens, std::move(index)};
  }
  [[nodiscard]] std::size_t bytes() const { return index.bytes_of_signs(); }

  template <typename Place>
  Result<SignSelect> in(Place& place) const {
    SignSelect op{.common = {}, .signs = index.shape(), .index = {}};
    TERRACE_ASSIGN(op.common, choice_in(place, tokens));
    TERRACE_ASSIGN(op.index, index.in(place));
    return op;
  }
};

template <typename Selection>
class SelectionOp final : public MeasuredOp {
  using Arguments = decltype(std::declval<Selection>().in(std::declval<HostPlace&>()).value());
  using Op = std::remove_cvref_t<Arguments>;

 public:
  static Result<std::shared_ptr<MeasuredOp>> create(std::shared_ptr<MeasuredDevice> device,
                                                    std::size_t tokens) {
    TERRACE_ASSIGN(const Selection selection, Selection::create(tokens));
    HostPlace host;
    TERRACE_ASSIGN(const Op on_host, selection.in(host));
    Serial threads;
    Selection::on_host(on_host, threads);
    const SelectCommon& common = on_host.common;
    TERRACE_ASSIGN(const Op op, selection.in(*device));
    return std::make_shared<SelectionOp>(
        std::move(device), op,
        std::vector(common.ids, common.ids + measured_layer.kv_heads * common.id_stride),
        selection.bytes());
  }

  SelectionOp(std::shared_ptr<MeasuredDevice> device, const Op& op,
              std::vector<std::uint32_t> expected, std::size_t bytes)
      : MeasuredOp(std::move(device), bytes), op_(op), expected_(std::move(expected)) {}

  [[nodiscard]] Result<Ticket> enqueue() override {
    return (device().ops().*Selection::on_device)(device().queue(), Phase::select, op_);
  }

  /// Rounding may swap neighbours in rank.
  [[nodiscard]] Status verify() override {
    const std::size_t count = op_.common.id_stride;
    std::vector<std::uint32_t> ids(expected_.size());
    std::vector<std::uint32_t> counts(measured_layer.kv_heads);
    TERRACE_TRY(device().take(op_.common.ids, std::span(ids)));
    TERRACE_TRY(device().take(op_.common.id_count, std::span(counts)));
    for (std::size_t head = 0; head < counts.size(); ++head) {
      if (counts[head] != count) {
        return fail(Errc::corrupt, "{} are selected, not {}", counts[head], count);
      }
      TERRACE_TRY(check_selected(std::span(ids).subspan(head * count, count),
                                 std::span(expected_).subspan(head * count, count),
                                 1 + count / 100));
    }
    return {};
  }

 private:
  Op op_;
  std::vector<std::uint32_t> expected_;
};

}  // namespace

std::vector<Question> selection_op_questions(const DeviceSettings& settings) {
  std::vector<Question> all =
      questions_of_op("pq_select", settings, &SelectionOp<CodeSelection>::create);
  for (Question& question :
       questions_of_op("sign_select", settings, &SelectionOp<SignSelection>::create)) {
    all.push_back(std::move(question));
  }
  return all;
}

}  // namespace terrace::bench
