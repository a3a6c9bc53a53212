// The decision of a retrieval policy: which rows of the middle a query attends to.
//
// A policy owns no memory. The policy says how large an index is (IndexLayout), builds it on the
// host from the rows of a layer, extends it as tokens leave the window, and enqueues the selection
// of a step into buffers of its caller. Runtime owns the memory, moves it, and attends to the
// selected rows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "terrace/core/backend.hpp"
#include "terrace/core/ids.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

/// A value of RetrievalTraits::indexed_together: all tokens that a build is given.
inline constexpr std::size_t whole_build = std::numeric_limits<std::size_t>::max();

/// The needs and abilities of a policy; read before it is chosen.
struct RetrievalTraits {
  std::string_view name = {};
  bool selects = true;            ///< false: sinks and window are all it attends to
  bool keeps_everything = false;  ///< the window is the whole sequence, in device memory
  /// The index summarises groups of so many tokens, counted from its first token: a group's summary
  /// is computed again when a token of it is cut off. 1 = no summary of several tokens.
  std::size_t indexed_together = 1;
  /// An extension reads the rows of its own tokens, and again the rows of the tokens just before
  /// that are in the same group of so many, counted from the index's first one. A cut reads the
  /// rows of its group before it. If the layout has IndexLayout::chunk_clusters, both may read the
  /// rows of all tokens.
  std::size_t read_together = 1;
  ListScope lists = ListScope::kv_head;
  bool clusters = false;        ///< building iterates, and takes a limit of iterations
  std::string clustering = {};  ///< the settings that an iteration's time depends on, in words
  /// Tokens that an extension takes at once. Below 2, each token is coded when it leaves the
  /// window. Otherwise tokens stay in the window until a batch is full: at least the smaller, at
  /// most the larger number, as the budget allows. A summary of a batch covers no other tokens,
  /// unless do_cut() handles that.
  std::size_t batch_tokens_min = 1;
  std::size_t batch_tokens_max = 1;
  /// An index trained on fewer tokens is built anew each time its tokens have doubled; 0 = never.
  std::size_t training_tokens = 0;
  // Hooks. Append and attend insist on those that a policy needs; queries may be missing.
  bool needs_pre_rope_keys = false;     ///< of prompts
  bool needs_attention_scores = false;  ///< of prompts
  bool needs_speculated_query = false;  ///< of steps
  std::size_t query_window_tokens = 0;  ///< post-RoPE queries of so many last prompt positions
  // Answers. Step::gather() refuses a bias and pseudo-entries, which its view cannot carry.
  bool gives_logit_bias = false;
  bool gives_pseudo_entries = false;
  /// Estimates are of the rows that were not selected: rests().
  bool estimates_rest = false;
  bool stops_at_mass = false;    ///< SelectRequest::mass may be given
  bool leaves_out_held = false;  ///< SelectRequest::held may be given
};

/// The memory of a layer's index, all KV heads: a fixed part and chunks of `chunk_tokens` tokens.
/// The host's copy is the truth; a chunk is the unit in which what was added moves to the device,
/// so it should be some kilobytes.
struct IndexLayout {
  std::size_t fixed_bytes = 0;
  std::size_t chunk_tokens = 0;
  std::size_t chunk_bytes = 0;
  std::size_t chunk_clusters = 0;  ///< places for clusters in a chunk; 0 = no clusters
  [[nodiscard]] bool empty() const noexcept { return chunk_bytes == 0; }
};

/// Hints from a prompt for index building, in addition to its rows. Empty if not asked for. f32,
/// host memory. A piece of a prompt has the hints of that piece, but the scores of all pieces so
/// far. A build gets the hints of the prompt's end.
struct PromptHints {
  std::span<const float> pre_rope_keys = {};     ///< [tokens, kv_heads, head_dim]
  std::span<const float> query_window = {};      ///< [positions, query_heads, head_dim], post-RoPE
  std::span<const float> attention_scores = {};  ///< [kv_heads, tokens], summed over queries
};

/// Builds the index of one layer on the host, or extends it.
struct BuildRequest {
  KvShape shape;
  LayerId layer{};
  BlockTable rows;    ///< host blocks
  TokenRange tokens;  ///< to be indexed; when extending, those from index.token_count on
  PromptHints hints;
  std::byte* fixed = nullptr;  ///< host; out of a build, in of an extension
  IndexView index;             ///< out, host chunks
  std::size_t iterations = 0;  ///< at most; for policies that cluster
  std::uint64_t seed = 0;
  /// `fixed` is that of an index of the same rows: what it learnt from hints may be kept.
  bool anew = false;
  const std::atomic<bool>* cancelled = nullptr;  ///< looked at between iterations; may be null

  /// Whether `tokens` are added to those that the index has.
  [[nodiscard]] bool extends() const noexcept { return index.token_count > 0; }
};

struct BuildReport {
  std::size_t iterations = 0;  ///< done; of several parts the most that one did
  double mean_iterations = 0;  ///< over parts, as their time goes: some may have been cut short.
                               ///< A part's own report leaves it 0
};

/// The target of a selection: buffers of fixed capacity in device memory. The policy's traits say
/// whether lists are those of KV heads or of query heads.
struct Selection {
  std::size_t capacity = 0;           ///< of each list
  std::uint32_t* ids = nullptr;       ///< [lists, capacity]: positions, in the order attended
  std::uint32_t* id_count = nullptr;  ///< [lists]
  float* logit_bias = nullptr;        ///< [lists, capacity]; null unless gives_logit_bias
  PseudoTarget pseudo;                ///< null unless gives_pseudo_entries
};

/// Chooses rows for one query token of a layer, all heads. Device memory.
struct SelectRequest {
  KvShape shape;
  LayerId layer{};
  const float* query = nullptr;  ///< [query_heads, head_dim], post-RoPE
  /// [query_heads, head_dim], post-RoPE, if needed: the query that the model expects to have in
  /// this layer, which it projects from the layer before's input; in layer 0 the query.
  const float* speculated_query = nullptr;
  TokenRange candidates;    ///< all of them coded
  RowCounts count;          ///< rows of each list; to select(), rows_within() the budget
  double mass = 0;          ///< share of attention mass to reach; 0 = by count
  HeldPositions held = {};  ///< attended anyway; with leaves_out_held alone
  IndexView index;
  BlockTable resident;  ///< blocks of sinks and window, which are attended anyway
  TokenRange sinks;
  TokenRange window;         ///< the query's own token included
  float* scratch = nullptr;  ///< select_scratch_floats
  Selection out = {};        ///< shares no memory with another request's of its batch
};

/// Asks what a selection left out. Device memory.
struct RestsRequest {
  /// The request of select(), whose scratch memory is free again; but count is the budget's.
  SelectRequest selection;
  std::byte* means = nullptr;  ///< [lists, pseudo_capacity] rows, for entries to lie in
};

/// Threads  parts of builds and extensions on host queues, the others on the caller's;
///          a policy has no mutable state
class RetrievalPolicy {
 public:
  RetrievalPolicy() = default;
  RetrievalPolicy(const RetrievalPolicy&) = delete;
  RetrievalPolicy& operator=(const RetrievalPolicy&) = delete;
  virtual ~RetrievalPolicy() = default;

  [[nodiscard]] virtual const RetrievalTraits& traits() const noexcept = 0;

  /// Errors: invalid_argument naming the setting that does not fit the shape.
  [[nodiscard]] virtual Result<IndexLayout> index_layout(const KvShape& shape) const = 0;

  /// Returns, for an index with clusters, the cluster of each token of a chunk for KV head `head`:
  /// u32 [chunk_tokens], in the host's memory. Numbers are below chunks * chunk_clusters.
  [[nodiscard]] virtual const std::uint32_t* labels(const KvShape& /*shape*/, std::byte* /*chunk*/,
                                                    std::size_t /*head*/) const noexcept {
    return nullptr;
  }

  /// Entries of pseudo_capacity per list for a sequence of at most `tokens`.
  [[nodiscard]] virtual std::size_t pseudo_capacity(std::size_t /*tokens*/) const noexcept {
    return 0;
  }

  /// Returns the rows of each list that a budget, which is the request's count, has room for:
  /// fewer, if estimates take the place of rows. select() gets this number.
  [[nodiscard]] virtual RowCounts rows_within(const SelectRequest& request) const noexcept {
    return request.count;
  }

  [[nodiscard]] virtual std::size_t select_scratch_floats(
      const KvShape& shape, std::size_t candidates) const noexcept = 0;

  /// An index is built, and extended, in parts that share nothing: side by side, or one after the
  /// other.
  [[nodiscard]] virtual std::size_t build_parts(const BuildRequest& request) const noexcept = 0;

  /// Builds a part, or extends it. An extension may change only chunks that hold one of `tokens`.
  [[nodiscard]] virtual Result<BuildReport> build_part(const BuildRequest& request,
                                                       std::size_t part) const = 0;

  /// Builds an index, or adds to one. On an error no row is lost: the runtime reports it and builds
  /// again. A part that throws std::bad_alloc is reported as out_of_memory.
  [[nodiscard]] Result<BuildReport> build(const BuildRequest& request, Parallel& threads) const;

  /// Cuts an index to index.token_count tokens, between two batches of extensions: summaries that
  /// tokens before and after the cut share are computed again from the former. `tokens` is empty,
  /// at the cut. Returns whether the chunk that the cut lies in changed; no other chunk changes.
  /// Errors: as build().
  [[nodiscard]] Result<bool> cut(const BuildRequest& request) const;

  /// Enqueues the selecting of some query tokens, of any sequences, as few pieces of work: an op
  /// takes all of them in one call. The rows that a request selects do not depend on the other
  /// requests.
  [[nodiscard]] virtual Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                              const Ops& ops) const = 0;

  /// Returns what a selection leaves of groups, for attention; with traits().estimates_rest.
  [[nodiscard]] virtual GroupRests rests(const RestsRequest& /*request*/) const { return {}; }

 protected:
  /// Policies override this if an extension may change what earlier extensions made.
  [[nodiscard]] virtual Result<bool> do_cut(const BuildRequest& /*request*/) const { return false; }
};

}  // namespace terrace
