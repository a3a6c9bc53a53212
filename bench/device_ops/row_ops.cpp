// Rows that a step brings from the host: finding where they are, and fetching them.
#include <algorithm>

#include "device_ops/layer_rows.hpp"
#include "device_ops/questions.hpp"

namespace terrace::bench {
namespace {

/// A tenth of the rows of a layer. The device has none of them.
class FetchOp final : public MeasuredOp {
 public:
  static Result<std::shared_ptr<MeasuredOp>> create(std::shared_ptr<MeasuredDevice> device,
                                                    std::size_t tokens) {
    TERRACE_ASSIGN(LayerSample rows, LayerSample::create(tokens));
    auto op = std::make_shared<FetchOp>(std::move(device), std::move(rows));
    TERRACE_TRY(op->place());
    return op;
  }

  FetchOp(std::shared_ptr<MeasuredDevice> device, LayerSample rows)
      : MeasuredOp(std::move(device), rows.ids().size() * measured_layer.row_bytes()),
        rows_(std::move(rows)) {}

  [[nodiscard]] Result<Ticket> enqueue() override {
    const Ops& ops = device().ops();
    TERRACE_TRY(ops.resolve_rows(device().queue(), Phase::fetch, resolve_));
    return ops.fetch_rows(device().queue(), Phase::fetch, fetch_);
  }

  [[nodiscard]] Status verify() override {
    const std::size_t row_bytes = measured_layer.row_bytes();
    std::vector<std::byte*> places(rows_.ids().size());
    std::vector<std::byte> staged(places.size() * row_bytes);
    TERRACE_TRY(device().take(resolve_.rows, std::span(places)));
    TERRACE_TRY(device().take(resolve_.staging, std::span(staged)));
    const std::vector<std::byte*> expected =
        rows_.selected_rows(const_cast<std::byte*>(rows_.memory().data()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      const auto at = static_cast<std::size_t>(places[i] - resolve_.staging);
      if (at % row_bytes != 0 || at >= staged.size() ||
          !std::equal(expected[i], expected[i] + row_bytes, &staged[at])) {
        return fail(Errc::corrupt, "row {} is not what the host has", i);
      }
    }
    return {};
  }

 private:
  Status place() {
    const std::size_t count = rows_.ids().size();
    resolve_ = {.shape = measured_layer, .id_stride = rows_.selected()};
    resolve_.resident.block_tokens = LayerSample::block_tokens;
    TERRACE_ASSIGN(resolve_.resident.blocks,
                   device().room_for<std::byte*>(rows_.tokens() / LayerSample::block_tokens));
    TERRACE_ASSIGN(resolve_.ids, device().copy_of(rows_.ids()));
    TERRACE_ASSIGN(resolve_.id_count, device().copy_of(rows_.counts()));
    TERRACE_ASSIGN(resolve_.staging,
                   device().room_for<std::byte>(count * measured_layer.row_bytes()));
    TERRACE_ASSIGN(resolve_.rows, device().room_for<std::byte*>(count));
    TERRACE_ASSIGN(resolve_.missed, device().room_for<MissedRow>(count));
    TERRACE_ASSIGN(resolve_.missed_count, device().room_for<std::uint32_t>(1));
    TERRACE_ASSIGN(std::byte* const memory, device().reachable_copy_of(rows_.memory()));
    const std::vector<std::byte*> blocks = rows_.blocks(memory);
    TERRACE_ASSIGN(std::byte* const* const table,
                   device().reachable_copy_of(std::span<std::byte* const>(blocks)));
    fetch_ = {.shape = measured_layer,
              .missed = resolve_.missed,
              .missed_count = resolve_.missed_count,
              .source = {table, LayerSample::block_tokens}};
    return {};
  }

  LayerSample rows_;
  ResolveRows resolve_;
  FetchRows fetch_;
};

}  // namespace

std::vector<Question> row_op_questions(const DeviceSettings& settings) {
  return questions_of_op("fetch", settings, &FetchOp::create);
}

std::vector<Question> device_op_questions(const DeviceSettings& settings) {
  std::vector<Question> all;
  for (auto* const part : {attention_op_questions, selection_op_questions, row_op_questions}) {
    for (Question& question : part(settings)) all.push_back(std::move(question));
  }
  return all;
}

}  // namespace terrace::bench
