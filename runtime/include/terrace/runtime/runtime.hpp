// The runtime: one model's KV memory over the tiers of one backend.
//
//   auto runtime = Runtime::open(options, std::move(backend));
//   auto sequence = (*runtime)->open_sequence();
//   (*sequence)->begin_prompt(tokens);                        // in pieces: the next steps
//   auto step = (*runtime)->begin_step(members, *compute);    // then per layer: attend; end
//
// It owns what sequences share: the backend, the policy, pools of blocks and host pages, and the
// threads that cluster, queues for copies, and a few threads for their work (docs/decisions/0071).
// Each sequence has resident caches of its own.
#pragma once

#include <memory>
#include <span>

#include "terrace/core/backend.hpp"
#include "terrace/core/result.hpp"
#include "terrace/runtime/memory_need.hpp"
#include "terrace/runtime/options.hpp"
#include "terrace/runtime/prefix.hpp"
#include "terrace/runtime/sequence.hpp"
#include "terrace/runtime/step.hpp"

namespace terrace {

class RuntimeState;

/// Threads  open_sequence from any thread; each sequence from one thread at a time
class Runtime {
 public:
  /// Takes the backend and makes pools and threads. RuntimeOptions::observer must outlive the
  /// runtime and all its sequences; so must what the backend was told of.
  /// Errors: invalid_argument or unsupported from the options; out_of_memory.
  static Result<std::unique_ptr<Runtime>> open(RuntimeOptions options,
                                               std::unique_ptr<Backend> backend);

  /// Closes the runtime. Sequences and steps may outlive it: calls that change them or read rows
  /// are then invalid_argument. The backend goes with the last of them, and queues made of it must
  /// have gone before.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Opens an empty sequence. Errors: out_of_memory.
  Result<std::unique_ptr<Sequence>> open_sequence();

  /// Opens a sequence that begins with the longest stored prefix of a query: length() says how many
  /// tokens were found, in whole chunks; 0 where nothing was found, or prefixes are not kept
  /// (RuntimeOptions::prefixes). Sinks, the window and the index are loaded; other rows stay in the
  /// store until a step selects them. Tokens that follow are decoded, or a prompt. Where the store
  /// has no index of the prefix, the next steps build one, of all rows.
  ///
  /// Order    returns when what the next step needs is on the device
  /// Errors   out_of_memory; where prefixes are kept, invalid_argument: hashes that do not fit
  ///          chunks, or tokens beside them. Errors of the store are a prefix that is not found
  Result<std::unique_ptr<Sequence>> open_sequence(const PrefixQuery& query);

  /// Returns how the calls of open_sequence(query) ended that looked a prefix up, each counted
  /// once; of all runtimes in the process that share the store. All are 0 where prefixes are not
  /// kept.
  ///
  /// Threads  any
  [[nodiscard]] PrefixCounters prefix_counters() const;

  /// Begins a step of all these sequences, with tokens from their length() on: makes room for them.
  /// A sequence that cannot begin does not take part; Step::status() says why. Sequences and the
  /// compute queue must outlive the step.
  /// Errors: invalid_argument: no members, a sequence of another runtime, a queue that backend()
  /// has not made, more tokens than positions can number.
  Result<std::unique_ptr<Step>> begin_step(std::span<const StepMember> members, Queue& compute,
                                           const StepOptions& options = {});

  /// Queues and buffers made of it must go before the runtime and the last of its sequences.
  [[nodiscard]] Backend& backend() noexcept;
  [[nodiscard]] const RuntimeOptions& options() const noexcept;
  /// Whether there is a store for rows that host memory has no room for (RowsBelowHost).
  [[nodiscard]] bool has_store_below_host() const noexcept;

  /// Device memory held for blocks of rows: sinks, windows and the cache.
  [[nodiscard]] std::size_t block_pool_bytes() const;

  /// Returns the memory that one more sequence takes at most in each tier, and what a step of it
  /// takes more: for admission.
  ///
  /// Threads  any, at once
  /// Cost     some arithmetic for each layer
  /// Errors   invalid_argument: no sequence gets that long, or 64 bits do not count the bytes
  [[nodiscard]] Result<MemoryNeed> memory_need(const NeedQuery& query) const;

  /// Sets the limit of the device's or the host's memory while sequences live, SIZE_MAX for none.
  /// Where more is in use, it is given up: memory of steps, then device blocks and cached copies
  /// that no next step needs or, on the host with a store below it, pages that no work reads.
  ///
  /// Threads  any. Sequences in a call or a step keep what they have
  /// Errors   out_of_memory: more stays in use. The limit holds for what comes all the same;
  ///          invalid_argument: another tier
  [[nodiscard]] Status set_limit(Tier tier, std::size_t bytes);

  /// Gives back the device memory that steps of prompts have left for the next ones. A call that
  /// lacks memory does so by itself.
  /// Threads  any; steps under way keep theirs
  void release_step_memory();

  [[nodiscard]] const RetrievalTraits& traits() const noexcept;
  /// Returns null where every token stays.
  [[nodiscard]] const RetentionTraits* retention_traits() const noexcept;

 private:
  explicit Runtime(std::shared_ptr<RuntimeState> state);
  std::shared_ptr<RuntimeState> state_;  ///< of its sequences, too
};

}  // namespace terrace
