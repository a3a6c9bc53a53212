// The options of a runtime: the model's shape, budgets, placement, sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/config.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/retention.hpp"
#include "terrace/core/retrieval.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/core/store.hpp"
#include "terrace/core/token_budget.hpp"
#include "terrace/policies/budget.hpp"
#include "terrace/policies/iteration_planner.hpp"
#include "terrace/policies/retention.hpp"
#include "terrace/policies/retrieval.hpp"
#include "terrace/runtime/cache_options.hpp"
#include "terrace/runtime/prefix.hpp"

namespace terrace {

class SelectionObserver;

/// Layers whose rows and selections leave for the host together, and whose cache's changes leave
/// for the device. To wake a queue takes longer than many pieces of its work.
inline constexpr std::size_t layers_per_batch = 4;

/// Where rows lie; never which rows are attended.
enum class Placement : std::uint8_t {
  offload,         ///< rows leave device memory as they leave the window
  resident_first,  ///< rows stay until device memory runs short
};

/// When selection applies.
enum class RetrievalWhen : std::uint8_t {
  always,   ///< at every step
  spilled,  ///< only in layers that have rows outside device memory
};

enum class IndexResidency : std::uint8_t {
  device,     ///< indexes lie in device memory, only increments move
  host,       ///< streamed one layer ahead, double buffered
  automatic,  ///< device where it fits
};

/// How decoding goes on while indexes are being built.
enum class UntilReady : std::uint8_t {
  exact,  ///< steps attend to all rows; which steps do depends on time
  wait,   ///< steps wait: two runs are the same
};

/// The place of tokens that retention does not keep as entries.
enum class DroppedTokens : std::uint8_t {
  release,  ///< nowhere: their rows leave device and host
  keep,     ///< on the host, where the retrieval policy selects among them
};

/// How tokens of a prompt in steps attend to tokens before the prompt.
enum class PromptAttention : std::uint8_t {
  exact,      ///< to all of them
  retrieved,  ///< to the selected ones among indexed tokens, and to all of the prompt's own
};

/// Building indexes anew while the sequence grows. When a new index takes over depends on time.
struct RefreshOptions {
  std::size_t tokens = 0;  ///< every so many; 0 = never
};

struct PlanningOptions {
  /// Iterations of layer l: element l, or the last one for layers beyond. Empty = by the planner.
  std::vector<std::size_t> iterations{10};
  policies::PlannerOptions limits = {};
  policies::CostModel costs = {};  ///< read by the planner only
};

/// The store for rows that do not fit into host memory.
///
/// Pages of whole blocks are evicted from the host, least recently wanted first, while no work
/// reads them. A call or step that needs their rows promotes them, and waits. So any sequence
/// computes the same, wherever its rows lie.
///
/// Errors   a page that cannot be read back is an error of the call or the step of its sequence,
///          which stays as it was before: io_error, corrupt, or not_ready past the deadline
struct RowsBelowHost {
  std::shared_ptr<Store> store = nullptr;  ///< null = a store in `file`
  /// Path of a file that the runtime makes and removes; empty = every row stays on the host.
  std::string file = {};
  std::uint64_t file_bytes = 0;  ///< its size, which is taken from the disk at once
  /// First half of the keys of pages. No other user of the store may have it at the same time.
  std::uint64_t owner = 0;
  /// Host memory that rows take before pages leave. Rows that are needed at once take more, up to
  /// three quarters of the limit of the backend's host memory: indexes and buffers need the rest.
  std::size_t host_bytes = std::numeric_limits<std::size_t>::max();
  /// Bytes a second that the store is known to read, as MachineProfile::nvme says; 0 = not known.
  /// As soon as rows are read, the rate is measured.
  double read_rate = 0;
};

struct RuntimeOptions {
  KvShape shape = {};
  std::string policy = "signs";
  /// Selects in place of the policy that `policy` names: an embedder's own.
  std::shared_ptr<const RetrievalPolicy> own_policy = {};
  policies::RetrievalOptions retrieval = {};
  /// Chooses which tokens that leave the window stay, or become one entry. "none" = all stay.
  /// Dropped tokens are gone for good, with retrieval policies that select nothing; or are kept,
  /// with policies that can leave out held tokens (RetrievalTraits::leaves_out_held).
  std::string retention_policy = "none";
  std::shared_ptr<const RetentionPolicy> own_retention = {};  ///< an embedder's own, in its place
  policies::RetentionOptions retention = {};
  DroppedTokens dropped = DroppedTokens::release;
  /// With DroppedTokens::keep: the entries' share of the budget that sinks and window leave; the
  /// rest is selected at each step.
  double held_share = 0.5;
  /// A share is of the tokens so far, so that the budget grows with the sequence; with retention,
  /// which has memory for one budget, of the first prompt.
  TokenBudget budget{.kind = TokenBudget::Kind::share, .value = 0.1};
  /// Least budget that a share gives, tokens. Sinks, a token of the window and a selected one are
  /// always in it.
  std::size_t budget_min = 512;
  std::size_t sink_tokens = 32;
  double window_share = 0.5;
  std::size_t dense_layers = 0;  ///< first layers that attend to everything, in device memory
  RetrievalWhen when = RetrievalWhen::always;
  PromptAttention prompts = PromptAttention::exact;
  Placement placement = Placement::offload;
  IndexResidency index_residency = IndexResidency::automatic;
  UntilReady until_ready = UntilReady::exact;
  std::size_t block_tokens = 32;
  std::size_t host_threads = 1;  ///< of clustering
  RefreshOptions refresh = {};
  CacheOptions cache = {};
  RowsBelowHost below_host = {};
  PrefixOptions prefixes = {};  ///< kept in the store of below_host
  PlanningOptions planning = {};
  /// Steps of decoding from one sample of the attention mass to the next
  /// (SequenceCounters::attention_mass); 0 = no samples, and no memory for them.
  ///
  /// A sample is of one KV head in one layer of a sequence's step, each in its turn, so that no
  /// step takes much longer: the mean, over its query heads, of the share of the softmax over all
  /// tokens so far that sinks, window, selected rows and entries of one token got. The sample of a
  /// draft is of its first token, accepted or not. Steps that attend to everything have a mass
  /// of 1. Samples are taken where the step ends, on the thread that ends it, while the device
  /// works.
  ///
  /// Cost     the queries of a KV head, copied to the host; then one reading of its keys there.
  ///          Meanwhile 8 bytes a token, and 8 a token and query head, are allocated
  /// Errors   none: without host memory for a sample, or where logits are not finite, there is no
  ///          sample. Nor is there any with a retention policy that drops tokens: their weight is
  ///          not known
  std::size_t mass_every = 0;
  /// Path of a file in which the runtime publishes what its sequences have counted so far, and its
  /// memory: metrics in the text format of Prometheus. Empty = none.
  ///
  /// Order    written when the runtime opens, and where a step or a sequence ends, once a second at
  ///          most: the counts of the last second, and those outside of steps, come with the next
  ///          one. The file goes with the runtime
  /// Cost     a small file, written by the thread that ends the step
  /// Errors   of Runtime::open: io_error. A file that cannot be written later stays as it was.
  ///          Two runtimes with one file write it in turns: give each its own
  std::string counters_file = {};
  Duration deadline = std::chrono::seconds{60};  ///< of every wait
  std::uint64_t seed = 0;
  SelectionObserver* observer = nullptr;  ///< of all sequences; must outlive them

  /// Reads the keys of a resolved config; `shape` is the model's, its dtype from kv.dtype.
  /// Errors: invalid_argument naming the key.
  static Result<RuntimeOptions> from(const Config& config, const KvShape& shape);

  /// Whether the tiers below the host fit together. It opens no file and no connection. Errors:
  /// invalid_argument naming the key.
  [[nodiscard]] Status check_tiers() const;

  /// Returns how the budget of a sequence of that length is dealt out.
  [[nodiscard]] policies::BudgetTerms budget_terms(std::size_t tokens) const noexcept;

  /// Errors: invalid_argument naming what does not fit.
  [[nodiscard]] Status validate() const;
};

}  // namespace terrace
