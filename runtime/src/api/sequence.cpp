#include "terrace/runtime/sequence.hpp"

#include <type_traits>
#include <utility>

#include "prefix_publisher.hpp"
#include "sequence_state.hpp"

namespace terrace {
namespace {

/// Does a call's `work`, unless the runtime is closed. Its errors name the call and the sequence.
/// It holds the state's mutex: spilling for another sequence, which only tries it, never sees a
/// state half-way.
template <typename Work>
std::invoke_result_t<Work> call(SequenceState& state, std::string_view name, Work does) {
  const std::lock_guard lock(state.mutex);
  TERRACE_TRY(state.parts.work.named(name, state.runtime().check_open("the sequence")));
  return state.parts.work.named(name, does());
}

}  // namespace

SequenceState& state_of(Sequence& sequence) noexcept { return *sequence.state_; }

Sequence::Sequence(std::unique_ptr<SequenceState> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;

Status Sequence::begin_prompt(std::size_t tokens) {
  return call(*state_, "begin_prompt", [&] { return state_->begin_prompt(tokens); });
}

bool Sequence::index_ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->index_ready();
}

Status Sequence::await_indexes() {
  return call(*state_, "await_indexes", [&] { return state_->await_indexes(); });
}

Status Sequence::truncate(std::size_t length) {
  return call(*state_, "truncate", [&] { return state_->truncate(length); });
}

Status Sequence::pause() {
  return call(*state_, "pause", [&] { return state_->pause(); });
}

Status Sequence::resume() {
  return call(*state_, "resume", [&] { return state_->resume(); });
}

Result<std::unique_ptr<Sequence>> Sequence::fork() {
  TERRACE_ASSIGN(auto twin, call(*state_, "fork", [&] { return state_->fork(); }));
  std::unique_ptr<Sequence> sequence(new Sequence(std::move(twin)));
  const Status started = sequence->state_->start_as_twin(*state_);
  if (started) return sequence;
  const std::lock_guard lock(state_->mutex);
  // It counts what was loaded for a twin that there will not be.
  state_->parts.work.counters.bytes.refill +=
      std::exchange(sequence->state_->parts.work.counters.bytes.refill, 0);
  return tl::unexpected(state_->parts.work.named("fork", started).error());
}

Result<PublishReport> Sequence::publish(const PrefixQuery& query) {
  TERRACE_ASSIGN(PublishReport report,
                 call(*state_, "publish", [&] { return publish_rows(*state_, query); }));
  const auto write_indexes_of = [&](Sequence& sequence) {
    return call(*sequence.state_, "publish",
                [&] { return publish_indexes(*sequence.state_, query, report); });
  };
  const auto write_indexes_of_twin = [&](std::size_t end) -> Result<bool> {
    TERRACE_ASSIGN(const auto twin, fork());
    TERRACE_TRY(twin->truncate(end));
    return write_indexes_of(*twin);
  };
  const auto write_indexes_at = [&](std::size_t end) -> Result<bool> {
    if (length() == end) return write_indexes_of(*this);
    const Result<bool> written = write_indexes_of_twin(end);
    if (!written && written.error().code == Errc::out_of_memory) return false;
    return written;
  };
  if (report.tokens > 0 && !report.indexed) {
    TERRACE_ASSIGN(report.indexed, write_indexes_at(report.tokens));
  }
  // A favour to others: where it fails, the caller's prefix is stored all the same.
  const std::size_t begun_with = state_->unindexed_prefix;
  if (begun_with > 0 && begun_with < report.tokens &&
      write_indexes_at(begun_with).value_or(false)) {
    state_->unindexed_prefix = 0;
  }
  return report;
}

std::size_t Sequence::readable_tokens() const {
  const std::lock_guard lock(state_->mutex);
  return state_->readable_tokens();
}

Status Sequence::read_rows(LayerId layer, HeadId head, std::span<const std::uint32_t> positions,
                           std::span<std::byte> target) {
  return call(*state_, "read_rows",
              [&] { return state_->read_rows(layer, head, positions, target); });
}

Result<ClusteringReport> Sequence::clustering() {
  return call(*state_, "clustering", [&] { return state_->clustering(); });
}

SequenceId Sequence::id() const noexcept { return state_->parts.work.id; }
SequencePhase Sequence::phase() const noexcept { return state_->parts.progress.phase(); }
std::size_t Sequence::length() const noexcept { return state_->parts.progress.length(); }
TokenRange Sequence::sinks() const noexcept { return state_->parts.progress.sinks_at(length()); }
TokenRange Sequence::window() const noexcept {
  const std::size_t begin = state_->parts.plan.drops()
                                ? state_->parts.progress.undecided_from(length())
                                : state_->parts.progress.window_at(length()).begin;
  return {begin, length()};
}
std::size_t Sequence::budget_tokens() const noexcept {
  const bool grows = state_->parts.progress.budget().resolved && state_->parts.plan.budget_grows();
  return grows ? state_->parts.plan.budget_terms(length() + 1).budget_tokens
               : state_->parts.progress.budget().tokens;
}
std::size_t Sequence::selected_tokens() const noexcept {
  return state_->parts.progress.budget().resolved
             ? state_->parts.progress.split_at(length()).selected
             : 0;
}
std::size_t Sequence::query_window_tokens() const noexcept {
  return state_->parts.query_window_tokens();
}
bool Sequence::needs_pre_rope_keys() const noexcept { return state_->parts.needs_pre_rope_keys(); }
bool Sequence::needs_speculated_query() const noexcept {
  return state_->parts.plan.traits().needs_speculated_query;
}
std::size_t Sequence::cache_capacity_tokens() const noexcept {
  return state_->parts.cache.capacity_tokens();
}
StepSelection Sequence::selection(LayerId layer) const noexcept { return state_->selection(layer); }
RetainedEntries Sequence::entries(LayerId layer, HeadId head) const noexcept {
  const auto& heads = state_->parts.layers[index(layer)]->retention.entries.now().heads;
  if (heads.empty()) return {};
  return {heads[index(head)].positions, heads[index(head)].degrees};
}
RetentionReport Sequence::retention() const {
  const std::lock_guard lock(state_->mutex);
  return state_->parts.retention.report();
}
SequenceCounters Sequence::counters() const noexcept {
  const std::lock_guard lock(state_->mutex);  // spilling for another sequence counts, too
  return state_->parts.work.counters;
}
void Sequence::reset_counters() noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->reset_counters();
}

}  // namespace terrace
