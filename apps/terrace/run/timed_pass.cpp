#include "run/timed_pass.hpp"

#include <algorithm>
#include <numeric>

#include "config_check.hpp"

namespace terrace::apps {
namespace {

using Steady = std::chrono::steady_clock;

QueueCounters difference(const QueueCounters& after, const QueueCounters& before) {
  QueueCounters result = after;
  for (std::size_t phase = 0; phase < phase_count; ++phase)
    result.busy[phase] -= before.busy[phase];
  result.waited -= before.waited;
  return result;
}

/// Notes the peaks of memory in a pass: during prompts, and during decoding.
class MemoryPeaks {
 public:
  MemoryPeaks(Runtime& runtime, TimedPass& pass) noexcept
      : runtime_(runtime), backend_(runtime.backend()), pass_(pass) {}

  void end_prompt() {
    runtime_.release_step_memory();
    note(pass_.prompt_device_peak_bytes);
  }
  void end_decoding() noexcept { note(pass_.device_peak_bytes); }

 private:
  void note(std::size_t& device_peak) noexcept {
    device_peak = std::max(device_peak, backend_.memory(Tier::device).peak);
    pass_.host_peak_bytes = std::max(pass_.host_peak_bytes, backend_.memory(Tier::host).peak);
    backend_.reset_peak();
  }

  Runtime& runtime_;
  Backend& backend_;
  TimedPass& pass_;
};

/// Times a turn; the first one has number 1.
Result<TimedTurn> time_turn(const RunJob& job, Session& session, Progress& progress,
                            std::size_t number, MemoryPeaks& peaks) {
  TimedTurn turn;
  const std::uint64_t streamed = session.sequence->counters().bytes.streamed;
  const auto begin = Steady::now();
  TERRACE_TRY(give(job, job.turns[number - 1], session));
  turn.prompt_seconds = seconds(Steady::now() - begin);
  turn.streamed_bytes = session.sequence->counters().bytes.streamed - streamed;
  peaks.end_prompt();
  TERRACE_ASSIGN(const auto taken, time_steps(job, session, progress, turn.fed, number));
  peaks.end_decoding();
  turn.decode_per_token = seconds(std::accumulate(taken.begin(), taken.end(), Duration{})) /
                          static_cast<double>(taken.size());
  return turn;
}

Result<double> time_prefill(const RunJob& job, Session& session) {
  const auto begin = Steady::now();
  TERRACE_TRY(prefill(job, session));
  return seconds(Steady::now() - begin);
}

Result<double> time_keep(const RunJob& job, Session& session) {
  const auto begin = Steady::now();
  TERRACE_TRY(keep(job, session));
  return seconds(Steady::now() - begin);
}

}  // namespace

TokenId most_likely(std::span<const float> logits) {
  return TokenId{static_cast<std::uint32_t>(std::ranges::max_element(logits) - logits.begin())};
}

bool has_ended(const RunJob& job, std::span<const TokenId> fed) {
  if (!job.generate || fed.empty()) return false;
  return std::ranges::count(job.end_tokens, fed.back()) > 0;
}

Result<std::vector<Duration>> time_steps(const RunJob& job, Session& session, Progress& progress,
                                         std::vector<TokenId>& fed, std::size_t prompt) {
  std::vector<Duration> taken;
  for (std::size_t step = 0; step < job.decode && !has_ended(job, fed); ++step) {
    fed.push_back(job.generate ? most_likely(session.decoder->logits())
                               : job.text.tokens[job.text_behind(prompt) + step]);
    const auto begin = Steady::now();
    TERRACE_TRY(session.decoder->step(*session.sequence, fed.back()));
    taken.emplace_back(Steady::now() - begin);
    progress.show(session.name, "decode",
                  static_cast<double>(step + 1) / static_cast<double>(job.decode));
  }
  return taken;
}

Result<TimedPass> run_timed_pass(const RunJob& job, Session& session, Progress& progress) {
  TimedPass pass;
  MemoryPeaks peaks(*session.runtime, pass);
  TERRACE_ASSIGN(pass.seconds.prefill, time_prefill(job, session));
  TERRACE_ASSIGN(pass.seconds.keep, time_keep(job, session));
  peaks.end_prompt();
  pass.seconds.prefill_without_clustering = pass.seconds.prefill;
  const std::uint64_t offloaded = session.sequence->counters().bytes.offload;
  session.reset_counters();

  const QueueCounters before = session.decoder->compute_queue().counters();
  StepTimes times;
  TERRACE_ASSIGN(const auto taken, time_steps(job, session, progress, pass.fed));
  peaks.end_decoding();
  times.wall = std::accumulate(taken.begin(), taken.end(), Duration{});
  times.queue = difference(session.decoder->compute_queue().counters(), before);

  TERRACE_ASSIGN(pass.clustering, session.sequence->clustering());
  pass.counters = session.sequence->counters();
  pass.retention = session.sequence->retention();
  pass.counters.bytes.offload += offloaded;
  for (std::size_t turn = 1; turn <= job.turns.size(); ++turn) {
    TERRACE_ASSIGN(TimedTurn timed, time_turn(job, session, progress, turn, peaks));
    pass.turns.push_back(std::move(timed));
  }
  pass.block_pool_bytes = session.runtime->block_pool_bytes();
  times.clustering_wait = pass.clustering.waited;
  deal_out(times, pass.fed.size(), pass.seconds);
  return pass;
}

void deal_out(const StepTimes& times, std::size_t steps, RunSeconds& result) {
  const auto mean = [&](Duration total) { return seconds(total) / static_cast<double>(steps); };
  const auto busy = [&](Phase phase) {
    return mean(times.queue.busy[static_cast<std::size_t>(phase)]);
  };
  result.decode_per_token = mean(times.wall);
  result.select = busy(Phase::select);
  result.fetch = busy(Phase::fetch);
  result.attend = busy(Phase::attend);
  result.model = busy(Phase::model);
  result.wait = mean(times.queue.waited + times.clustering_wait);
  const double named = result.select + result.fetch + result.attend + result.model + result.wait;
  result.update = std::max(result.decode_per_token - named, 0.0);
}

Result<double> time_prefill_without_clustering(const RunJob& job, const std::string& policy,
                                               Progress& progress) {
  // The same budget and placement, and neither index nor entries.
  const Config bare =
      with_values(job.config, {{"retrieval.policy", "streaming"}, {"retention.policy", "none"}});
  TERRACE_ASSIGN(Session session,
                 open_session(job, bare, progress,
                              {.policy = policy, .prefill = "prefill without clustering"}));
  return time_prefill(job, session);
}

}  // namespace terrace::apps
