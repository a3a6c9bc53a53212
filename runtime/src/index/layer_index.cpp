#include "layer_index.hpp"

#include <algorithm>

#include "sequence/sequence_context.hpp"

namespace terrace {

Status LayerIndex::keep_replaced(Backend& backend, const IndexLayout& layout) {
  ReplacedIndex kept;
  kept.coverage = coverage;
  if (!coverage.tokens.empty()) TERRACE_TRY(kept.host.copy_from(host, backend, layout));
  replaced = std::move(kept);
  return {};
}

void LayerIndex::put_back_replaced() noexcept {
  coverage = std::move(replaced->coverage);
  if (!coverage.tokens.empty()) std::swap(host, replaced->host);
  building = false;
  ++epoch;
  members_stale = true;
}

std::byte* LayerIndex::open_chunk(const IndexLayout& layout, TokenRange tokens) const noexcept {
  if (layout.empty() || tokens.size() % layout.chunk_tokens == 0) return nullptr;
  return host.chunk(tokens.size() / layout.chunk_tokens);
}

void LayerIndex::note_before_prompt(const IndexLayout& layout) {
  before_prompt = {.coverage = coverage,
                   .pre_rope_keys = build.hints.pre_rope_keys.size(),
                   .attention_scores = build.hints.attention_scores};
  if (const std::byte* const chunk = open_chunk(layout, coverage.tokens)) {
    before_prompt.chunk.assign(chunk, chunk + layout.chunk_bytes);
  }
}

void LayerIndex::put_back_before_prompt(const IndexLayout& layout) noexcept {
  if (replaced) {
    put_back_replaced();
    replaced.reset();
  } else if (std::byte* const chunk = open_chunk(layout, before_prompt.coverage.tokens)) {
    std::ranges::copy(before_prompt.chunk, chunk);
  }
  coverage = std::move(before_prompt.coverage);
  put_back_hints();
  coded = {};  // it may have failed
  members_stale = true;
  ++epoch;  // clusters to come get the names of those that go
}

void LayerIndex::put_back_hints() noexcept {
  build.hints.pre_rope_keys.resize(before_prompt.pre_rope_keys);
  build.hints.query_window.clear();
  build.hints.attention_scores = std::move(before_prompt.attention_scores);
}

void LayerIndex::read_members(const SequenceContext& context) {
  if (!members_stale) return;
  IndexView view = host.view(context.layout(), coverage.tokens.begin);
  view.token_count = coverage.tokens.size();
  members.read(context.policy(), context.shape(), context.layout(), view);
  members_stale = false;
}

}  // namespace terrace
