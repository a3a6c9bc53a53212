#include "prefix_adopter.hpp"

#include <algorithm>
#include <optional>

#include "prefix_library.hpp"
#include "saved_index.hpp"

namespace terrace {
namespace {

/// The chunks that a sequence begins with.
struct Prefix {
  std::vector<tiers::ChunkKey> keys;
  std::size_t tokens = 0;
};

bool has_rows(const tiers::Manifest& chunk, const SequenceContext& context, std::size_t bytes) {
  for (std::size_t layer = 0; layer < context.shape().layers; ++layer) {
    const tiers::Part* const rows = chunk.find(PrefixLibrary::rows_of(layer));
    if (rows == nullptr || rows->bytes != bytes) return false;
  }
  return true;
}

Result<Prefix> find(SequenceContext& context, const PrefixQuery& query) {
  PrefixLibrary& library = *context.runtime.prefixes();
  Prefix prefix;
  TERRACE_ASSIGN(prefix.keys, library.keys_of(query));
  TERRACE_ASSIGN(const std::vector<tiers::Manifest> run, library.chunks().find_run(prefix.keys));
  const std::size_t bytes =
      library.chunk_tokens() / context.block_tokens() * context.runtime.block_bytes();
  const auto end = std::ranges::find_if_not(
      run, [&](const tiers::Manifest& chunk) { return has_rows(chunk, context, bytes); });
  prefix.keys.resize(static_cast<std::size_t>(end - run.begin()));
  prefix.tokens = prefix.keys.size() * library.chunk_tokens();
  return prefix;
}

Status adopt_rows(SequenceState& state, const Prefix& prefix) {
  const SequenceContext& context = state.parts.context;
  const std::size_t blocks = prefix.tokens / prefix.keys.size() / context.block_tokens();
  for (const auto& layer : state.parts.layers) {
    std::vector<offload::StoredPlace> places;
    for (const tiers::ChunkKey& chunk : prefix.keys) {
      const PageKey key = tiers::page_key(chunk, PrefixLibrary::rows_of(layer->number));
      for (std::size_t block = 0; block < blocks; ++block) {
        places.push_back({.key = key, .offset = block * context.runtime.block_bytes()});
      }
    }
    TERRACE_TRY(layer->rows.adopt(places));
  }
  return {};
}

/// Returns the indexes of the longest part of a prefix that has some.
Result<std::optional<tiers::Manifest>> find_indexes(PrefixLibrary& library, const Prefix& prefix) {
  std::vector<tiers::ChunkKey> keys;
  for (const tiers::ChunkKey& chunk : prefix.keys) {
    TERRACE_ASSIGN(keys.emplace_back(), library.index_key(chunk));
  }
  TERRACE_ASSIGN(const std::vector<bool> there, library.chunks().has(keys));
  for (std::size_t i = keys.size(); i-- > 0;) {
    if (!there[i]) continue;
    TERRACE_ASSIGN(std::vector<tiers::Manifest> found, library.chunks().find_run({&keys[i], 1}));
    if (!found.empty()) return std::move(found.front());
  }
  return std::nullopt;
}

/// Without indexes, or with damaged ones, the next step builds them of the rows.
Status adopt_indexes(SequenceState& state, const Prefix& prefix) {
  SequenceContext& context = state.parts.context;
  if (context.layout().empty()) return {};
  PrefixLibrary& library = *context.runtime.prefixes();
  TERRACE_ASSIGN(const std::optional<tiers::Manifest> found, find_indexes(library, prefix));
  if (!found) return {};
  const Status read = read_indexes(library.chunks(), *found, context, state.parts.layers);
  if (read) {
    context.counters.store.read += found->bytes();
    return {};
  }
  if (read.error().code == Errc::out_of_memory) return read;
  static_cast<void>(library.chunks().erase(*found));
  return {};
}

}  // namespace

Status adopt_prefix(SequenceState& state, const PrefixQuery& query) {
  SequenceContext& context = state.parts.context;
  TERRACE_ASSIGN(const Prefix prefix, find(context, query));
  if (prefix.keys.empty()) return {};
  TERRACE_TRY(adopt_rows(state, prefix));
  context.length = prefix.tokens;
  context.prompt = {0, prefix.tokens};
  context.prompt_given = true;
  context.resolve_budget(prefix.tokens);
  TERRACE_TRY(adopt_indexes(state, prefix));
  context.journal.note_loss();
  context.phase = SequencePhase::paused;
  return state.resume();
}

}  // namespace terrace
