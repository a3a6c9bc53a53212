#include "index_room.hpp"

#include <algorithm>

#include "layer/layer.hpp"
#include "resident_indexes.hpp"
#include "streamed_indexes.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

IndexRoom::IndexRoom(const SequenceServices& services, LayerSpan layers)
    : plan_(services.plan),
      progress_(services.progress),
      work_(services.work),
      memory_(services.memory),
      layers_(layers) {
  start_over();
}

void IndexRoom::start_over() {
  if (plan_.options.index_residency == IndexResidency::host) {
    device_ = std::make_unique<StreamedIndexes>(plan_, progress_, work_, layers_);
  } else {
    device_ = std::make_unique<ResidentIndexes>(plan_, progress_, work_, layers_);
  }
}

Status IndexRoom::reserve(std::size_t tokens_end) {
  const IndexLayout& layout = plan_.layout;
  if (layout.empty() || progress_.list_rows() == 0) return {};
  const std::size_t first = progress_.sinks_at(tokens_end).end;
  const std::size_t chunks = divide_up(tokens_end - first, layout.chunk_tokens);
  if (chunks == 0) return {};
  for (const auto& layer : layers_.subspan(plan_.options.dense_layers)) {
    LayerIndex& index = layer->index;
    TERRACE_TRY(index.image.memory.reserve(work_.backend, layout, chunks));
    // Coding and copying read the index as it was when they were enqueued.
    const bool unread = poll(index.coded).value_or(true) && poll(index.uploaded).value_or(true);
    if (unread) index.image.memory.forget_old_copies();
  }
  const Status reserved = device_->reserve(chunks);
  if (reserved || reserved.error().code != Errc::out_of_memory) return reserved;
  ready = ready && !streams();
  const bool may_stream = !streams() && progress_.phase() == SequencePhase::idle &&
                          plan_.options.index_residency == IndexResidency::automatic;
  if (!may_stream) return reserved;
  TERRACE_TRY(stream());
  return device_->reserve(chunks);
}

TokenRange IndexRoom::chunks_of(TokenRange tokens, std::size_t first) const noexcept {
  const std::size_t chunk_tokens = plan_.layout.chunk_tokens;
  return {(tokens.begin - first) / chunk_tokens, divide_up(tokens.end - first, chunk_tokens)};
}

Status IndexRoom::prepare_build(Layer& layer, TokenRange tokens) {
  return prepare(
      layer, tokens.end,
      {.chunks = chunks_of(tokens, tokens.begin), .with_fixed = true, .keeps_chunks = false});
}

Status IndexRoom::prepare_extension(Layer& layer, TokenRange tokens) {
  const TokenRange& coded = layer.index.image.coverage.tokens();
  const std::size_t first = coded.empty() ? tokens.begin : coded.begin;
  // An extension of no tokens learns from its own.
  return prepare(layer, tokens.end,
                 {.chunks = chunks_of(tokens, first), .with_fixed = coded.empty()});
}

Status IndexRoom::prepare_cut(Layer& layer, std::size_t position) {
  const std::size_t first = layer.index.image.coverage.tokens().begin;
  return layer.index.image.memory.own(work_.backend, plan_.layout,
                                      {.chunks = chunks_of({position, position + 1}, first)});
}

Status IndexRoom::prepare(Layer& layer, std::size_t tokens_end, const IndexPart& part) {
  LayerIndex& index = layer.index;
  // Coding would write to the memory that is replaced.
  if (index.image.memory.shares(plan_.layout, part)) {
    TERRACE_TRY(work_.await(WaitReason::index, index.coded));
  }
  return memory_.make_room([&]() -> Status {
    TERRACE_TRY(reserve(tokens_end));
    return index.image.memory.own(work_.backend, plan_.layout, part);
  });
}

Status IndexRoom::stream() {
  for (const auto& layer : layers_)
    TERRACE_TRY(work_.await(WaitReason::upload, layer->index.uploaded));
  device_ = std::make_unique<StreamedIndexes>(plan_, progress_, work_, layers_);
  ready = false;  // nothing is on its way for the first layer
  return {};
}

void IndexRoom::trim() {
  const IndexLayout& layout = plan_.layout;
  if (layout.empty()) return;
  const std::size_t length = progress_.length();
  const std::size_t chunks =
      divide_up(length - progress_.sinks_at(length).end, layout.chunk_tokens);
  for (const auto& layer : layers_) layer->index.image.memory.trim(layout, chunks);
  device_->trim(chunks);
}

std::size_t IndexRoom::indexed_end() const noexcept {
  // Some layers are dense, and a refresh takes over in one layer at a time.
  std::size_t end = 0;
  for (const auto& layer : layers_) end = std::max(end, layer->index.image.coverage.tokens().end);
  return end;
}

}  // namespace terrace
