// A runtime with a decoder and a sequence, in which a policy is run.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "progress.hpp"
#include "run/job.hpp"
#include "terrace/engine/decoder.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::apps {

/// The part of the context that an earlier run had kept.
struct RestoredContext {
  std::size_t tokens = 0;
  std::uint64_t bytes_read = 0;  ///< of rows and indexes, by the end of the prefill
};

/// Members end in reverse order: the sequence before the queue that it works on.
struct Session {
  std::string name;  ///< of the policy, as a list of policies has it
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<engine::Decoder> decoder;
  std::unique_ptr<Sequence> sequence;
  std::uint64_t context_builds = 0;  ///< of the sequence's counters: built by the context's end
  RestoredContext restored = {};
  PublishReport kept = {};  ///< for later runs

  void reset_counters() noexcept {
    sequence->reset_counters();
    context_builds = 0;
  }
};

/// The observers of a session (null = no observer) and the name that a terminal shows for the
/// prefill.
struct SessionObservers {
  WorkObserver* work = nullptr;
  SelectionObserver* selections = nullptr;
  std::string policy = {};  ///< empty = the config's
  std::string_view prefill = "prefill";
};

/// Opens a session for the job's model under `config`. If iterations of clustering are planned and
/// the profile has no costs of this setting, the machine is measured first. `progress` and the
/// observers must outlive the session.
Result<Session> open_session(const RunJob& job, const Config& config, Progress& progress,
                             const SessionObservers& observers = {});

/// Prefills the job's context, in pieces where the job says so: what of it was not kept by an
/// earlier run, where the job looks for that. The session's sequence is empty.
Status prefill(const RunJob& job, Session& session);

/// Keeps the context's rows and indexes for later runs, after prefill(), if the job says so.
/// Policies that keep no rows on the host, and retention, keep nothing.
Status keep(const RunJob& job, Session& session);

/// Adds a turn to the end of the session's sequence, in pieces.
Status give(const RunJob& job, const Turn& turn, Session& session);

/// Takes the session back to the end of its prompt. If an index may have been trained on decoded
/// tokens, this prefills again: an index must not know the tokens on which it is measured.
Status return_to_context(const RunJob& job, Session& session);

/// Returns the element type of keys and values of all the job's runs.
Dtype kv_dtype(const RunJob& job);

}  // namespace terrace::apps
