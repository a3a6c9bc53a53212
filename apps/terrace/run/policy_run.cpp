#include "run/policy_run.hpp"

#include "run/needle_questions.hpp"

namespace terrace::apps {

Result<PolicyFigures> run_policy(const PolicyRun& run, const std::string& policy) {
  const bool recorded = run.trace != nullptr && run.trace->policy() == policy;
  TERRACE_ASSIGN(Session session,
                 open_session(run.job, config_of_policy(run.job, policy), run.progress,
                              {.work = run.timeline,
                               .selections = recorded ? &run.trace->recorder() : nullptr}));
  if (run.timeline != nullptr) run.timeline->record(policy);
  TERRACE_ASSIGN(TimedPass timed, run_timed_pass(run.job, session, run.progress));
  if (run.timeline != nullptr) run.timeline->pause();
  if (recorded) run.trace->end(timed);
  if (run.prompts != nullptr && run.prompts->policy() == policy) {
    TERRACE_TRY(run.prompts->record(run.job, timed));
  }
  if (run.times_bare_prefill && session.runtime->traits().clusters) {
    TERRACE_ASSIGN(timed.seconds.prefill_without_clustering,
                   time_prefill_without_clustering(run.job, policy, run.progress));
  }
  TERRACE_ASSIGN(const QualityPass quality,
                 run_quality_pass(run.job, session, timed, run.probe, run.progress));
  PolicyFigures figures = make_figures(run.job, session, timed, quality, run.reference);
  // At last, for questions in prompts take the session's sequence away.
  TERRACE_ASSIGN(figures.needles, ask_needles(run.job, session, run.progress));
  return figures;
}

}  // namespace terrace::apps
