#include "terrace/runtime/sequence.hpp"

#include <algorithm>
#include <iterator>

#include "handles.hpp"
#include "json.hpp"
#include "sized_struct.hpp"

namespace terrace::bindings {
namespace {

static_assert(static_cast<int>(SequencePhase::idle) == TERRACE_PHASE_IDLE);
static_assert(static_cast<int>(SequencePhase::step) == TERRACE_PHASE_STEP);
static_assert(static_cast<int>(SequencePhase::paused) == TERRACE_PHASE_PAUSED);
static_assert(static_cast<int>(SequencePhase::lost) == TERRACE_PHASE_LOST);

/// Runs a call's `work` on a sequence of an open runtime.
template <typename Work>
terrace_status on_sequence(std::string_view call, terrace_sequence* handle, Work work) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(handle, call, "sequence"));
    TERRACE_TRY(handle->shared->runtime->check_open(call, "the sequence"));
    return work(*handle->shared->sequence);
  });
}

/// Errors: out_of_memory: a sequence of so many tokens does not fit in an empty device, in steps of
/// one token. Its cache does not count, and rows that stay only until memory runs short do not:
/// both can be evicted.
Status check_room(Runtime& runtime, std::size_t tokens) {
  if (tokens == 0 || runtime.options().placement != Placement::offload) return {};
  TERRACE_ASSIGN(const MemoryNeed need, runtime.memory_need({.tokens = tokens}));
  const std::size_t bytes = need.device_held + need.device_step + need.device_shared;
  const std::size_t limit = runtime.backend().memory(Tier::device).limit;
  if (bytes <= limit) return {};
  return fail(Errc::out_of_memory,
              "a sequence of {} tokens takes {} of device memory, and device.memory is {}; raise "
              "it, or lower retrieval.budget",
              tokens, format_size(bytes), format_size(limit));
}

Result<std::unique_ptr<terrace_sequence>> make_handle(std::shared_ptr<SharedRuntime> runtime,
                                                      std::unique_ptr<Sequence> sequence) {
  auto handle = std::make_unique<terrace_sequence>();
  handle->shared = std::make_shared<SharedSequence>(std::move(runtime), std::move(sequence));
  return handle;
}

/// A PrefixQuery with the tokens that it points to.
struct ReadQuery {
  std::vector<TokenId> tokens = {};
  std::string salt = {};
  bool with_tail = false;
  PrefixHashes hashes = {};  ///< in the caller's memory

  [[nodiscard]] PrefixQuery query() const {
    return {.tokens = tokens, .salt = salt, .with_tail = with_tail, .hashes = hashes};
  }
};

Result<PrefixHashes> read_hashes(const terrace_prefix_query& query) {
  if (query.hashes == nullptr) return fail(Errc::invalid_argument, "query.hashes is NULL");
  if (query.hash_bytes == 0 || query.hash_count > SIZE_MAX / query.hash_bytes) {
    return fail(Errc::invalid_argument, "query.hash_bytes is {}, for {} hashes", query.hash_bytes,
                query.hash_count);
  }
  return PrefixHashes{
      .values = {static_cast<const std::byte*>(query.hashes), query.hash_count * query.hash_bytes},
      .bytes = query.hash_bytes,
      .tokens = query.hash_tokens};
}

/// Errors: those of read_struct; invalid_argument: NULL where there are tokens, bytes of salt or
/// hashes, or hashes without bytes.
Result<ReadQuery> read_query(const terrace_prefix_query* given) {
  constexpr std::size_t size_min = offsetof(terrace_prefix_query, salt);
  TERRACE_ASSIGN(
      const terrace_prefix_query query,
      read_struct<terrace_prefix_query>(given, TERRACE_PREFIX_QUERY_INIT, size_min, "query"));
  ReadQuery read{.with_tail = query.with_tail != 0};
  if (query.token_count > 0) {
    if (query.tokens == nullptr) return fail(Errc::invalid_argument, "query.tokens is NULL");
    read.tokens.reserve(query.token_count);
    std::transform(query.tokens, query.tokens + query.token_count, std::back_inserter(read.tokens),
                   [](std::uint32_t id) { return TokenId{id}; });
  }
  if (query.salt_bytes > 0) {
    if (query.salt == nullptr) return fail(Errc::invalid_argument, "query.salt is NULL");
    read.salt.assign(static_cast<const char*>(query.salt), query.salt_bytes);
  }
  if (query.hash_count > 0) {
    TERRACE_ASSIGN(read.hashes, read_hashes(query));
  }
  return read;
}

terrace_publish_report report_of(const PublishReport& report) {
  return {.size = sizeof(terrace_publish_report),
          .tokens = report.tokens,
          .chunks = report.chunks,
          .bytes = report.bytes,
          .indexed = report.indexed ? 1 : 0,
          .reserved = 0};
}

/// Makes a handle of the sequence that `open` returns of the runtime, unless the options' tokens
/// have no room.
template <typename Open>
Result<std::unique_ptr<terrace_sequence>> open_sequence(terrace_runtime& runtime,
                                                        const terrace_sequence_options* options,
                                                        Open open) {
  TERRACE_ASSIGN(const terrace_sequence_options read,
                 read_optional_struct<terrace_sequence_options>(
                     options, TERRACE_SEQUENCE_OPTIONS_INIT, "options"));
  Runtime& opened = *runtime.shared->runtime;
  TERRACE_TRY(check_room(opened, read.expected_tokens));
  TERRACE_ASSIGN(auto sequence, open(opened));
  return make_handle(runtime.shared, std::move(sequence));
}

terrace_needs needs_of(const SharedSequence& shared) {
  const RetrievalTraits& traits = shared.runtime->runtime->traits();
  terrace_needs needs = TERRACE_NEEDS_INIT;
  needs.query_window_tokens = shared.sequence->query_window_tokens();
  needs.pre_rope_keys = shared.sequence->needs_pre_rope_keys() ? 1 : 0;
  needs.attention_scores = traits.needs_attention_scores ? 1 : 0;
  needs.speculated_query = traits.needs_speculated_query ? 1 : 0;
  return needs;
}

}  // namespace
}  // namespace terrace::bindings

using namespace terrace;
using bindings::check_given;
using bindings::guarded;
using bindings::on_sequence;

terrace_status terrace_sequence_open(terrace_runtime* runtime,
                                     const terrace_sequence_options* options,
                                     terrace_sequence** sequence) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(sequence, "terrace_sequence_open", "sequence"));
    *sequence = nullptr;
    TERRACE_TRY(check_given(runtime, "terrace_sequence_open", "runtime"));
    TERRACE_ASSIGN(auto handle, bindings::open_sequence(*runtime, options, [](Runtime& opened) {
                     return opened.open_sequence();
                   }));
    *sequence = handle.release();
    return {};
  });
}

terrace_status terrace_sequence_open_prefix(terrace_runtime* runtime,
                                            const terrace_sequence_options* options,
                                            const terrace_prefix_query* query,
                                            terrace_sequence** sequence, size_t* found) {
  if (found != nullptr) *found = 0;
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(sequence, "terrace_sequence_open_prefix", "sequence"));
    *sequence = nullptr;
    TERRACE_TRY(check_given(runtime, "terrace_sequence_open_prefix", "runtime"));
    TERRACE_ASSIGN(const bindings::ReadQuery read, bindings::read_query(query));
    TERRACE_ASSIGN(auto handle, bindings::open_sequence(*runtime, options, [&](Runtime& opened) {
                     return opened.open_sequence(read.query());
                   }));
    if (found != nullptr) *found = handle->shared->sequence->length();
    *sequence = handle.release();
    return {};
  });
}

void terrace_sequence_close(terrace_sequence* sequence) { delete sequence; }

size_t terrace_sequence_length(const terrace_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->shared->sequence->length();
}

size_t terrace_sequence_readable_tokens(const terrace_sequence* sequence) {
  return sequence == nullptr ? 0 : sequence->shared->sequence->readable_tokens();
}

terrace_phase terrace_sequence_phase(const terrace_sequence* sequence) {
  if (sequence == nullptr) return TERRACE_PHASE_LOST;
  return static_cast<terrace_phase>(sequence->shared->sequence->phase());
}

terrace_status terrace_sequence_needs(const terrace_sequence* sequence, terrace_needs* needs) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(sequence, "terrace_sequence_needs", "sequence"));
    return bindings::write_struct(needs, bindings::needs_of(*sequence->shared), "needs");
  });
}

terrace_status terrace_sequence_begin_prompt(terrace_sequence* sequence, size_t tokens) {
  return on_sequence("terrace_sequence_begin_prompt", sequence,
                     [=](Sequence& one) { return one.begin_prompt(tokens); });
}

terrace_status terrace_sequence_truncate(terrace_sequence* sequence, size_t length) {
  return on_sequence("terrace_sequence_truncate", sequence,
                     [=](Sequence& one) { return one.truncate(length); });
}

terrace_status terrace_sequence_fork(terrace_sequence* sequence, terrace_sequence** twin) {
  if (twin != nullptr) *twin = nullptr;
  return on_sequence("terrace_sequence_fork", sequence, [=](Sequence& one) -> Status {
    TERRACE_TRY(check_given(twin, "terrace_sequence_fork", "twin"));
    TERRACE_ASSIGN(auto forked, one.fork());
    TERRACE_ASSIGN(auto handle,
                   bindings::make_handle(sequence->shared->runtime, std::move(forked)));
    *twin = handle.release();
    return {};
  });
}

terrace_status terrace_sequence_pause(terrace_sequence* sequence) {
  return on_sequence("terrace_sequence_pause", sequence, [](Sequence& one) { return one.pause(); });
}

terrace_status terrace_sequence_resume(terrace_sequence* sequence) {
  return on_sequence("terrace_sequence_resume", sequence,
                     [](Sequence& one) { return one.resume(); });
}

int terrace_sequence_index_ready(const terrace_sequence* sequence) {
  return sequence != nullptr && sequence->shared->sequence->index_ready() ? 1 : 0;
}

terrace_status terrace_sequence_await_indexes(terrace_sequence* sequence) {
  return on_sequence("terrace_sequence_await_indexes", sequence,
                     [](Sequence& one) { return one.await_indexes(); });
}

terrace_status terrace_sequence_publish(terrace_sequence* sequence,
                                        const terrace_prefix_query* query,
                                        terrace_publish_report* report) {
  return on_sequence("terrace_sequence_publish", sequence, [=](Sequence& one) -> Status {
    TERRACE_ASSIGN(const bindings::ReadQuery read, bindings::read_query(query));
    terrace_publish_report done = TERRACE_PUBLISH_REPORT_INIT;
    // A report that cannot be written is refused before anything is published.
    if (report != nullptr) TERRACE_TRY(bindings::write_struct(report, done, "report"));
    TERRACE_ASSIGN(const PublishReport published, one.publish(read.query()));
    done = bindings::report_of(published);
    return report == nullptr ? Status() : bindings::write_struct(report, done, "report");
  });
}

terrace_status terrace_sequence_read_rows(terrace_sequence* sequence, uint32_t layer,
                                          uint32_t kv_head, const uint32_t* positions, size_t count,
                                          void* target, size_t target_bytes) {
  return on_sequence("terrace_sequence_read_rows", sequence, [=](Sequence& one) -> Status {
    if (count > 0) {
      TERRACE_TRY(check_given(positions, "terrace_sequence_read_rows", "positions"));
      TERRACE_TRY(check_given(target, "terrace_sequence_read_rows", "target"));
    }
    return one.read_rows(LayerId{layer}, HeadId{kv_head}, {positions, count},
                         {static_cast<std::byte*>(target), target_bytes});
  });
}

terrace_status terrace_sequence_counters(terrace_sequence* sequence, const char** json) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(json, "terrace_sequence_counters", "json"));
    *json = nullptr;
    TERRACE_TRY(check_given(sequence, "terrace_sequence_counters", "sequence"));
    sequence->counters = bindings::counters_as_json(*sequence->shared->sequence);
    *json = sequence->counters.c_str();
    return {};
  });
}
