#include "index_refresh.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "layer/layer.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {

Status IndexRefresh::go_on() {
  if (plan_.options.refresh.tokens == 0 || plan_.layout.empty()) return {};
  if (layer_ == nullptr) {
    Layer* const layer = stalest();
    return layer != nullptr ? start(*layer) : Status{};
  }
  const Result<bool> done = poll(done_);
  if (!done) return give_up();
  return *done ? take_up() : Status{};
}

Layer* IndexRefresh::stalest() const noexcept {
  Layer* stalest = nullptr;
  std::size_t most = plan_.options.refresh.tokens;
  for (const auto& layer : layers_) {
    const IndexCoverage& coverage = layer->index.image.coverage;
    if (layer->index.building || coverage.tokens().empty()) continue;
    const std::size_t since = coverage.tokens().end - coverage.fresh_end();
    if (since < most) continue;
    stalest = layer.get();
    most = since + 1;
  }
  return stalest;
}

Status IndexRefresh::start(Layer& layer) {
  const TokenRange& coded = layer.index.image.coverage.tokens();
  const std::size_t block_tokens = plan_.block_tokens();
  // The last block is still being written.
  const TokenRange tokens{coded.begin, coded.end / block_tokens * block_tokens};
  if (tokens.end <= tokens.begin) return {};
  layer_ = &layer;
  next_.coverage.start(tokens);
  blocks_.clear();
  if (!reserve() || !own()) return give_up();
  if (plan_.layout.fixed_bytes > 0) {
    std::memcpy(next_.memory.fixed(), layer.index.image.memory.fixed(), plan_.layout.fixed_bytes);
  }
  return enqueue(tokens);
}

bool IndexRefresh::reserve() {
  const IndexLayout& layout = plan_.layout;
  const std::size_t tokens = layer_->index.image.coverage.tokens().size();
  return next_.memory.reserve(work_.backend, layout, divide_up(tokens, layout.chunk_tokens))
      .has_value();
}

bool IndexRefresh::own() {
  IndexMemory& memory = next_.memory;
  const IndexPart all{
      .chunks = {0, memory.chunk_count()}, .with_fixed = true, .keeps_chunks = false};
  const Status owned = memory.own(work_.backend, plan_.layout, all);
  memory.forget_old_copies();
  return owned.has_value();
}

Status IndexRefresh::enqueue(TokenRange tokens) {
  Result<HostRows> rows = layer_->host_rows({0, tokens.end});
  if (!rows) return give_up();
  rows_ = std::move(*rows);
  while (blocks_.size() * plan_.block_tokens() < tokens.end) {
    blocks_.push_back(rows_.page(blocks_.size()));
  }
  under_way_ = tokens;
  begun_at_ = progress_.length();
  BuildRequest request = builder_.request(*layer_, tokens, rows_);
  request.rows = {.blocks = blocks_.data(), .block_tokens = plan_.block_tokens()};
  request.fixed = next_.memory.fixed();
  request.index = next_.view(plan_.layout);
  request.index.token_count = tokens.begin - next_.coverage.tokens().begin;
  request.anew = true;
  request.cancelled = &cancelled_;
  const auto work = [this, request]() -> Result<std::size_t> {
    Serial alone;
    result_ = plan_.policy->build(request, alone).map([](const BuildReport&) {});
    return 0;
  };
  TERRACE_ASSIGN(done_, work_.lanes.refresh()->call(Phase::cluster, work));
  return {};
}

Status IndexRefresh::take_up() {
  const std::size_t coded_end = layer_->index.image.coverage.tokens().end;
  const bool was_cut = coded_end < under_way_.end;
  if (!result_ || was_cut) return give_up();
  // A step waits for what is still lacking then: for a block of tokens, not for long, or for as few
  // as there will be, where as many come as are added.
  const bool adding = under_way_.begin >= next_.coverage.fresh_end();
  const bool gains = !adding || progress_.length() - begun_at_ < under_way_.size();
  const bool nearly_there = coded_end - under_way_.end <= plan_.block_tokens();
  return nearly_there || !gains ? publish() : catch_up();
}

Status IndexRefresh::catch_up() {
  // A chunk of tokens at once: more come meanwhile, but fewer.
  const std::size_t begin = under_way_.end;
  const std::size_t end =
      std::min(layer_->index.image.coverage.tokens().end, begin + plan_.layout.chunk_tokens);
  if (!reserve()) return give_up();
  TERRACE_TRY(work_.lanes.refresh()->wait_for(layer_->tickets().offloaded));
  next_.coverage.extend_to(end, plan_.traits().batch_tokens_max > 1);
  return enqueue({begin, end});
}

Status IndexRefresh::publish() {
  Layer& layer = *layer_;
  LayerIndex& index = layer.index;
  // Work that still codes into the old index, or copies it, must have ended.
  const Result<bool> coded = poll(index.coded);
  const Result<bool> uploaded = poll(index.uploaded);
  if (!coded || !uploaded || !*coded || !*uploaded) return {};
  // The new index ends before the old one does: what it lacks is coded now or, should that fail,
  // before anything else.
  next_.coverage.lose(index.image.coverage.lost_ends());
  next_.coverage.lose(std::array{index.image.coverage.tokens().end});
  std::swap(index.image, next_);
  index.clusters.rename();
  stop();
  ++work_.counters.refreshes;
  room_.device().mark_stale(layer);
  TERRACE_TRY(upkeep_.code_lost_tokens(layer));
  TERRACE_ASSIGN(const std::size_t bytes, room_.device().renew(layer));
  work_.counters.bytes.index += bytes;
  return {};
}

Status IndexRefresh::give_up() {
  layer_->index.image.coverage.skip_refresh(next_.coverage.fresh_end());
  stop();
  return work_.lanes.refresh()->clear_error();
}

void IndexRefresh::stop() noexcept {
  layer_ = nullptr;
  rows_ = {};
  done_ = {};
  cancelled_.store(false, std::memory_order_relaxed);
}

}  // namespace terrace
