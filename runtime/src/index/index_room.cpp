#include "index_room.hpp"

#include <algorithm>

#include "resident_indexes.hpp"
#include "sequence/layer.hpp"
#include "streamed_indexes.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

IndexRoom::IndexRoom(SequenceContext& context, LayerSpan layers)
    : context_(context), layers_(layers) {
  start_over();
}

void IndexRoom::start_over() {
  if (context_.options().index_residency == IndexResidency::host) {
    device_ = std::make_unique<StreamedIndexes>(context_, layers_);
  } else {
    device_ = std::make_unique<ResidentIndexes>(context_, layers_);
  }
}

Status IndexRoom::reserve(std::size_t tokens_end) {
  const IndexLayout& layout = context_.layout();
  if (layout.empty() || context_.list_rows() == 0) return {};
  const std::size_t first = context_.sinks_at(tokens_end).end;
  const std::size_t chunks = divide_up(tokens_end - first, layout.chunk_tokens);
  if (chunks == 0) return {};
  for (const auto& layer : layers_.subspan(context_.options().dense_layers)) {
    LayerIndex& index = layer->index;
    TERRACE_TRY(index.host.reserve(context_.backend(), layout, chunks));
    // Coding reads the table as it was when it was enqueued.
    if (poll(index.coded).value_or(true)) index.host.table().forget_old_copies();
  }
  const Status reserved = device_->reserve(chunks);
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  ready = ready && !streams();
  const bool may_stream = !streams() && context_.phase == SequencePhase::idle &&
                          context_.options().index_residency == IndexResidency::automatic;
  if (!may_stream) return reserved;
  TERRACE_TRY(stream());
  return device_->reserve(chunks);
}

Status IndexRoom::stream() {
  for (const auto& layer : layers_)
    TERRACE_TRY(context_.await(WaitReason::upload, layer->index.uploaded));
  device_ = std::make_unique<StreamedIndexes>(context_, layers_);
  ready = false;  // nothing is on its way for the first layer
  return {};
}

void IndexRoom::trim() {
  const IndexLayout& layout = context_.layout();
  if (layout.empty()) return;
  const std::size_t length = context_.length;
  const std::size_t chunks = divide_up(length - context_.sinks_at(length).end, layout.chunk_tokens);
  for (const auto& layer : layers_) layer->index.host.trim(layout, chunks);
  device_->trim(chunks);
}

std::size_t IndexRoom::indexed_end() const noexcept {
  // Some layers are dense, and a refresh takes over in one layer at a time.
  std::size_t end = 0;
  for (const auto& layer : layers_) end = std::max(end, layer->index.coverage.tokens.end);
  return end;
}

}  // namespace terrace
