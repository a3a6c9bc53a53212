#include "streamed_indexes.hpp"

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

StreamedIndexes::Stage& StreamedIndexes::stage_of(const Layer& layer) noexcept {
  return stages_[layer.number % 2];
}

Status StreamedIndexes::reserve(std::size_t chunks) {
  const auto reserve_stages = [&]() -> Status {
    for (Stage& stage : stages_) {
      // The table that growing would move may be read, or still be on its way.
      if (stage.memory.chunk_count() < chunks) {
        TERRACE_TRY(work_.await(WaitReason::upload, stage.read));
        TERRACE_TRY(work_.await(WaitReason::upload, stage.streamed));
      }
      TERRACE_TRY(stage.memory.reserve(work_.backend, plan_.layout, chunks));
    }
    return {};
  };
  const Status reserved = reserve_stages();
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  // One stage that grew would leave the other none: both are given up, and steps reserve smaller
  // ones.
  for (const Stage& stage : stages_) {
    TERRACE_TRY(work_.await(WaitReason::upload, stage.streamed));
    TERRACE_TRY(work_.await(WaitReason::upload, stage.read));
  }
  reset();
  return reserved;
}

Status StreamedIndexes::prefetch(Layer& layer, std::size_t position) {
  LayerIndex& index = layer.index;
  const bool nothing_to_select =
      progress_.window_at(position).begin <= progress_.sinks_at(position).end;
  if (index.image.coverage.tokens().empty() || nothing_to_select) return {};
  Stage& stage = stage_of(layer);
  const IndexLayout& layout = plan_.layout;
  Queue& queue = work_.lanes.index();
  TERRACE_TRY(queue.wait_for(stage.read));
  TERRACE_TRY(queue.wait_for(index.coded));
  TERRACE_TRY(stage.memory.table().flush(queue));
  extents_.clear();
  const TokenRange chunks{0, divide_up(index.image.coverage.tokens().size(), layout.chunk_tokens)};
  std::size_t bytes =
      append_chunk_copies(layout, index.image.memory, stage.memory, chunks, extents_);
  if (layout.fixed_bytes > 0) {
    extents_.push_back({stage.memory.fixed(), index.image.memory.fixed(), layout.fixed_bytes});
    bytes += layout.fixed_bytes;
  }
  TERRACE_ASSIGN(stage.streamed, queue.copy(Phase::index, extents_));
  index.uploaded = stage.streamed;
  work_.counters.bytes.index += bytes;
  return {};
}

Result<IndexView> StreamedIndexes::view(Layer& layer, Queue& compute) {
  Stage& stage = stage_of(layer);
  TERRACE_TRY(compute.wait_for(stage.streamed));
  const TokenRange tokens = layer.index.image.coverage.tokens();
  IndexView view = stage.memory.view(plan_.layout, tokens.begin);
  view.token_count = tokens.size();
  return view;
}

void StreamedIndexes::note_read(const Layer& layer, Ticket read) noexcept {
  stage_of(layer).read = read;
}

void StreamedIndexes::end_step() noexcept {
  for (Stage& stage : stages_) stage.read = {};
}

void StreamedIndexes::come_to_rest() {
  for (Stage& stage : stages_) {
    stage.streamed = stage.read = {};
    stage.memory.table().touch_all();
  }
}

}  // namespace terrace
