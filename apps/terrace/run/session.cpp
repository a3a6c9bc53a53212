#include "run/session.hpp"

#include "backend_choice.hpp"
#include "config_check.hpp"
#include "machine.hpp"
#include "terrace/engine/cost_measurement.hpp"

namespace terrace::apps {
namespace {

const MachineProfile* profile_of(const RunJob& job) noexcept {
  return job.profile ? &*job.profile : nullptr;
}

/// Returns the costs in this CPU's profile for this setting; else the machine is measured, on
/// another backend, so that the run's memory and times stay clean.
Result<policies::CostModel> find_costs(const RunJob& job, const Config& config,
                                       const RuntimeOptions& options,
                                       const RetrievalTraits& policy) {
  TERRACE_ASSIGN(const offload::ChosenBackend chosen,
                 choose_backend(config, {.profile = profile_of(job)}));
  if (job.profile && job.profile->cpu == cpu_name()) {
    const auto& known = job.profile->compute;
    const auto entry =
        known.find(engine::cost_setting(job.model.config(), options, policy, *chosen.backend));
    if (entry != known.end()) return entry->second;
  }
  return engine::measure_costs(job.model, options, *chosen.backend);
}

Status plan_iterations(const RunJob& job, const Config& config, RuntimeOptions& options) {
  if (!options.planning.iterations.empty()) return {};
  TERRACE_ASSIGN(const auto policy,
                 policies::make_retrieval_policy(options.policy, options.retrieval));
  if (!policy->traits().clusters) return {};
  TERRACE_ASSIGN(options.planning.costs, find_costs(job, config, options, policy->traits()));
  return {};
}

/// Whether an index was built after the context, so that it includes decoded tokens.
bool trained_on_output(const Session& session) {
  const SequenceCounters counters = session.sequence->counters();
  return counters.builds > session.context_builds || counters.refreshes > 0;
}

}  // namespace

Dtype kv_dtype(const RunJob& job) { return *parse_dtype(job.config.text("kv.dtype")); }

Result<Session> open_session(const RunJob& job, const Config& config, Progress& progress,
                             const SessionObservers& observers) {
  TERRACE_ASSIGN(RuntimeOptions options, runtime_options(job, config, kv_dtype(job)));
  TERRACE_TRY(plan_iterations(job, config, options));
  options.observer = observers.selections;
  if (job.profile && job.profile->nvme) options.below_host.read_rate = job.profile->nvme->read;
  TERRACE_ASSIGN(offload::ChosenBackend chosen,
                 choose_backend(config, {.observer = observers.work, .profile = profile_of(job)}));
  Session session{.name = observers.policy.empty() ? policy_name(config) : observers.policy};
  TERRACE_ASSIGN(session.runtime, Runtime::open(options, std::move(chosen.backend)));
  const auto show = [&progress, prefill = observers.prefill, policy = session.name](double share) {
    progress.show(policy, prefill, share);
  };
  TERRACE_ASSIGN(session.decoder,
                 engine::Decoder::create(
                     job.model, *session.runtime,
                     {.rope_length = job.context, .deadline = options.deadline, .progress = show}));
  TERRACE_ASSIGN(session.sequence, session.runtime->open_sequence());
  return session;
}

Status prefill(const RunJob& job, Session& session) {
  if (!job.restore.empty()) {
    session.sequence.reset();  // first, for device memory may hold but one
    TERRACE_ASSIGN(session.sequence,
                   session.runtime->open_sequence(kept_context(job, job.restore)));
    session.restored.tokens = session.sequence->length();
  }
  const auto rest = std::span(job.text.tokens).first(job.context).subspan(session.restored.tokens);
  TERRACE_TRY(
      session.decoder->prefill(*session.sequence, rest, {.piece_tokens = job.prefill_chunk}));
  const SequenceCounters counters = session.sequence->counters();
  session.context_builds = counters.builds;
  session.restored.bytes_read = counters.store.read;
  return {};
}

Status keep(const RunJob& job, Session& session) {
  if (job.save.empty()) return {};
  const Result<PublishReport> kept = session.sequence->publish(kept_context(job, job.save));
  if (kept) {
    session.kept = *kept;
  } else if (kept.error().code != Errc::unsupported) {
    return tl::unexpected(kept.error().while_doing("--save " + job.save));
  }
  return {};
}

Status give(const RunJob& job, const Turn& turn, Session& session) {
  return session.decoder->prefill(*session.sequence, turn, {.piece_tokens = job.turn_chunk()});
}

Status return_to_context(const RunJob& job, Session& session) {
  // Tokens that retention has dropped do not come back.
  const bool lost = session.runtime->retention_traits() != nullptr;
  if (!lost && !trained_on_output(session)) {
    return session.sequence->truncate(job.context);
  }
  session.sequence.reset();  // first, for device memory may hold but one
  TERRACE_ASSIGN(session.sequence, session.runtime->open_sequence());
  return prefill(job, session);
}

}  // namespace terrace::apps
