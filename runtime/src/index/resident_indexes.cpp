#include "resident_indexes.hpp"

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

ResidentIndexes::ResidentIndexes(const RuntimePlan& plan, const SequenceProgress& progress,
                                 SequenceWork& work, LayerSpan layers)
    : DeviceIndexes(plan, progress, work, layers), copies_(layers.size()) {}

Status ResidentIndexes::reserve(std::size_t chunks) {
  for (const auto& layer : layers_) {
    if (copies_[layer->number].memory.chunk_count() < chunks) {
      TERRACE_TRY(work_.await(WaitReason::upload, layer->index.uploaded));
    }
  }
  for (std::size_t i = plan_.options.dense_layers; i < copies_.size(); ++i) {
    TERRACE_TRY(copies_[i].memory.reserve(work_.backend, plan_.layout, chunks));
  }
  return {};
}

void ResidentIndexes::trim(std::size_t chunks) {
  for (Copy& copy : copies_) copy.memory.trim(plan_.layout, chunks);
}

void ResidentIndexes::reset() {
  for (Copy& copy : copies_) copy.memory.reset();
}

Result<std::size_t> ResidentIndexes::stage(Layer& layer, TokenRange tokens, bool with_fixed) {
  const IndexLayout& layout = plan_.layout;
  IndexMemory& copy = copies_[layer.number].memory;
  TERRACE_TRY(copy.table().flush(work_.lanes.index()));
  const std::size_t first = layer.index.image.coverage.tokens().begin;
  const TokenRange chunks{(tokens.begin - first) / layout.chunk_tokens,
                          divide_up(tokens.end - first, layout.chunk_tokens)};
  std::size_t bytes = append_chunk_copies(layout, layer.index.image.memory, copy, chunks, extents_);
  if (with_fixed && layout.fixed_bytes > 0) {
    extents_.push_back({copy.fixed(), layer.index.image.memory.fixed(), layout.fixed_bytes});
    bytes += layout.fixed_bytes;
  }
  staged_.push_back(&layer);
  return bytes;
}

Status ResidentIndexes::send() {
  if (staged_.empty()) return {};
  Queue& queue = work_.lanes.index();
  const auto enqueue = [&]() -> Result<Ticket> {
    for (Layer* layer : staged_) {
      TERRACE_TRY(queue.wait_for(layer->index.coded));
      TERRACE_TRY(queue.wait_for(layer->tickets().attended));
    }
    return queue.copy(Phase::index, extents_);
  };
  const Result<Ticket> sent = enqueue();
  for (Layer* layer : staged_) {
    if (sent) {
      layer->index.uploaded = *sent;
    } else {
      mark_stale(*layer);
    }
  }
  forget_staged();
  return sent.map([](Ticket) {});
}

void ResidentIndexes::forget_staged() noexcept {
  extents_.clear();
  staged_.clear();
}

void ResidentIndexes::mark_stale(const Layer& layer) { copies_[layer.number].stale = true; }

Result<std::size_t> ResidentIndexes::renew(Layer& layer) {
  if (!copies_[layer.number].stale) return 0;
  const TokenRange tokens = layer.index.image.coverage.tokens();
  TERRACE_ASSIGN(const std::size_t bytes, stage(layer, tokens, /*with_fixed=*/true));
  TERRACE_TRY(send());
  copies_[layer.number].stale = false;
  return bytes;
}

Result<IndexView> ResidentIndexes::view(Layer& layer, Queue& compute) {
  IndexMemory& copy = copies_[layer.number].memory;
  TERRACE_TRY(compute.wait_for(layer.index.uploaded));
  // Tables of all layers grow at once: this one may have, and had nothing to upload since.
  TERRACE_TRY(copy.table().flush(compute));
  const TokenRange tokens = layer.index.image.coverage.tokens();
  IndexView view = copy.view(plan_.layout, tokens.begin);
  view.token_count = tokens.size();
  return view;
}

void ResidentIndexes::come_to_rest() {
  for (Copy& copy : copies_) copy.memory.table().touch_all();
}

}  // namespace terrace
