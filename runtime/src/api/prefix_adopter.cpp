#include "prefix_adopter.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include "prefix/prefix_library.hpp"
#include "prefix/saved_index.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

/// A prefix that is looked up, and what was found of it.
struct FoundPrefix {
  PrefixNames names;
  tiers::LookUp look_up;
  std::shared_ptr<const tiers::ChunkLease> lease;

  [[nodiscard]] std::size_t chunks() const noexcept { return look_up.run.size(); }
  /// Tokens of the chunks that were found.
  [[nodiscard]] std::size_t tokens() const noexcept {
    return chunks() == 0 ? 0 : names.tokens_of(chunks() - 1).end;
  }
};

std::size_t blocks_of(const tiers::Manifest& chunk, const RuntimePlan& plan) {
  return divide_up(std::size_t{chunk.tokens()}, plan.block_tokens());
}

bool has_rows(const tiers::Manifest& chunk, const SequenceParts& parts, std::size_t tokens) {
  if (chunk.tokens() != tokens) return false;
  const std::size_t bytes = blocks_of(chunk, parts.plan) * parts.plan.block_bytes();
  for (std::size_t layer = 0; layer < parts.plan.shape().layers; ++layer) {
    const tiers::Part* const rows = chunk.find(PrefixLibrary::rows_of(layer));
    if (rows == nullptr || rows->bytes != bytes) return false;
  }
  return true;
}

/// Returns how many seconds computing a token takes; nothing where that is not known, or where a
/// prefix is loaded whatever it takes. Loading a tail restores a sequence as it was.
std::optional<double> seconds_of_a_token(SequenceState& state, const PrefixQuery& query) {
  const RuntimeState& runtime = state.runtime();
  if (runtime.plan.options.prefixes.load == PrefixLoad::always || query.with_tail) return {};
  return runtime.prompts.seconds_for(1, runtime.backend->clock().now());
}

/// Returns how many bytes of a prefix's rows the prompt behind it will read, about.
std::uint64_t bytes_to_read(const RuntimePlan& plan, std::size_t tokens) {
  const bool exact = plan.options.prompts == PromptAttention::exact;
  const std::size_t read = exact ? tokens : plan.budget_terms(tokens).budget_tokens;
  return std::uint64_t{std::min(tokens, read)} * plan.shape().layers * plan.shape().token_bytes();
}

/// Whether the tokens of a prefix are known to be computed in less time than its rows are read.
bool is_computed_faster(SequenceState& state, double token_seconds, const FoundPrefix& found) {
  if (found.chunks() == 0) return false;
  const std::size_t tokens = found.tokens();
  const RuntimeState& runtime = state.runtime();
  const std::optional<double> read = runtime.host->read_seconds(bytes_to_read(runtime.plan, tokens),
                                                                runtime.backend->clock().now());
  return read && token_seconds * static_cast<double>(tokens) < *read;
}

Result<FoundPrefix> find(SequenceState& state, PrefixLibrary& library, const PrefixQuery& query) {
  const SequenceParts& parts = state.parts;
  FoundPrefix found;
  TERRACE_ASSIGN(found.names, library.names_of(query));
  tiers::FindRequest request = found.names.request(found.names.chunks, parts.work.clock().now());
  const std::optional<double> token_seconds = seconds_of_a_token(state, query);
  request.token_seconds = token_seconds.value_or(0);
  found.look_up = library.chunks().find_run(request, query.length());
  const auto& run = found.look_up.run;
  std::size_t usable = 0;
  while (usable < run.size() &&
         has_rows(run[usable], parts, found.names.tokens_of(usable).size())) {
    ++usable;
  }
  if (usable < run.size()) {
    const Error why = make_error(Errc::corrupt, "a chunk of another shape than its key says");
    found.look_up.lease.drop(usable, why);
    library.chunks().amend(found.look_up, usable, tiers::reason_of(why));
  }
  if (token_seconds && is_computed_faster(state, *token_seconds, found)) {
    library.chunks().amend(found.look_up, 0, tiers::MissReason::slower);
  }
  found.lease = std::make_shared<const tiers::ChunkLease>(std::move(found.look_up.lease));
  return found;
}

Status adopt_rows(const SequenceParts& parts, std::size_t chunk_tokens, const FoundPrefix& prefix) {
  const auto source = parts.memory.host.mover()->source_of(prefix.lease->held()->store());
  for (const auto& layer : parts.layers) {
    std::vector<offload::StoredPlace> places;
    for (const tiers::Manifest& chunk : prefix.look_up.run) {
      const PageKey key = tiers::page_key(chunk.chunk(), PrefixLibrary::rows_of(layer->number));
      for (std::size_t block = 0; block < blocks_of(chunk, parts.plan); ++block) {
        places.push_back(
            {.key = key, .offset = block * parts.plan.block_bytes(), .source = source});
      }
    }
    TERRACE_TRY(layer->rows.adopt({.places = places,
                                   .blocks_of_chunk = chunk_tokens / parts.plan.block_tokens(),
                                   .lease = prefix.lease}));
  }
  return {};
}

/// Leases the indexes of the longest part of a prefix that has some; nothing where none has.
Result<std::optional<tiers::LeasedChunk>> find_indexes(PrefixLibrary& library,
                                                       const FoundPrefix& prefix, TimePoint now) {
  std::vector<tiers::ChunkKey> keys;
  for (const tiers::Manifest& chunk : prefix.look_up.run) {
    TERRACE_ASSIGN(keys.emplace_back(), library.index_key(chunk.chunk()));
  }
  return library.chunks().find_last(prefix.names.request(keys, now));
}

/// Returns how many tokens have indexes now, from the front. Without any, with damaged ones, or
/// with a keeper that does not answer, the next step builds them of the rows.
Result<std::size_t> adopt_indexes(SequenceParts& parts, PrefixLibrary& library,
                                  const FoundPrefix& prefix) {
  const auto asked = find_indexes(library, prefix, parts.work.clock().now());
  if (!asked || !*asked) return 0;
  const tiers::LeasedChunk& found = **asked;
  tiers::HeldChunks& held = *found.lease.held();
  const Status read = read_indexes(
      held, found.manifest,
      {.backend = parts.work.backend, .layout = parts.plan.layout, .length = prefix.tokens()},
      parts.layers);
  if (read) {
    parts.work.counters.store.read += found.manifest.bytes();
    return found.manifest.tokens();
  }
  if (read.error().code == Errc::out_of_memory) return tl::unexpected(read.error());
  held.drop(found.manifest.chunk(), read.error());
  return 0;
}

Status begin_with(SequenceState& state, PrefixLibrary& library, const FoundPrefix& prefix) {
  SequenceParts& parts = state.parts;
  const std::size_t tokens = prefix.tokens();
  TERRACE_TRY(adopt_rows(parts, library.chunk_tokens(), prefix));
  std::size_t indexed = tokens;
  if (!parts.plan.layout.empty()) {
    TERRACE_ASSIGN(indexed, adopt_indexes(parts, library, prefix));
    const bool has_tail = tokens % library.chunk_tokens() != 0;
    if (indexed < tokens && !has_tail) state.unindexed_prefix = tokens;
  }
  parts.progress.begin_with_prefix(tokens, indexed);
  parts.work.journal.note_loss();
  return state.resume();
}

}  // namespace

Status adopt_prefix(SequenceState& state, PrefixLibrary& library, const PrefixQuery& query) {
  TERRACE_ASSIGN(FoundPrefix prefix, find(state, library, query));
  if (prefix.chunks() == 0) return {};
  const Status begun = begin_with(state, library, prefix);
  const bool failed = !begun && begun.error().code != Errc::out_of_memory;
  if (failed) library.chunks().amend(prefix.look_up, 0, tiers::reason_of(begun.error()));
  return begun;
}

}  // namespace terrace
