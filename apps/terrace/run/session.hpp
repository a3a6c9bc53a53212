// One runtime with a decoder and a sequence on it: what a policy is run in.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "progress.hpp"
#include "run/job.hpp"
#include "terrace/engine/decoder.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::apps {

/// Members end in reverse order: the sequence before the queue that it works on.
struct Session {
  std::string name;  ///< of the policy, as a list of policies has it
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<engine::Decoder> decoder;
  std::unique_ptr<Sequence> sequence;
  std::uint64_t context_builds = 0;  ///< of the sequence's counters: built by the context's end

  void reset_counters() noexcept {
    sequence->reset_counters();
    context_builds = 0;
  }
};

/// The observers of a session, null = nobody, and the name that a terminal shows for the prefill.
struct SessionObservers {
  WorkObserver* work = nullptr;
  SelectionObserver* selections = nullptr;
  std::string policy = {};  ///< empty = the config's
  std::string_view prefill = "prefill";
};

/// Opens a session for the job's model under `config`. Where iterations of clustering are planned
/// and the profile has no costs of this setting, the machine is measured first. `progress` and the
/// observers must outlive the session.
Result<Session> open_session(const RunJob& job, const Config& config, Progress& progress,
                             const SessionObservers& observers = {});

/// Prefills the job's context, in pieces where the job says so.
Status prefill(const RunJob& job, Session& session);

/// Gives a turn, in pieces, behind what the session's sequence has.
Status give(const RunJob& job, const Turn& turn, Session& session);

/// Takes the session back to the end of its prompt. Where an index may have been trained on what
/// was decoded, that takes another prefill: what is to be measured must not be known.
Status return_to_context(const RunJob& job, Session& session);

/// Returns the element type of keys and values of all the job's runs.
Dtype kv_dtype(const RunJob& job);

}  // namespace terrace::apps
