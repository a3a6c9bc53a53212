// Prefixes: rows and indexes of tokens that several sequences begin with, kept in the store below
// the host, or by the daemon of the node. A sequence that begins with a stored prefix has its rows
// without computing them: it loads the index and what steps need, and leaves the rest where it
// lies.
//
//   TERRACE_ASSIGN(auto sequence, runtime->open_sequence(PrefixQuery{.tokens = prompt}));
//   sequence->begin_prompt(prompt.size() - sequence->length());   // what was not found
//   ...
//   TERRACE_TRY(sequence->publish(PrefixQuery{.tokens = prompt}));
//
// Prefixes are found by what they are: a chain of SHA-256 over token ids, the model, the shape and
// the salt of a tenant (docs/decisions/0118).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "terrace/core/clock.hpp"
#include "terrace/core/ids.hpp"

namespace terrace {

/// Servers of the Redis protocol: prefixes that are published go to them, too, and look-ups ask
/// them for what the store below the host lacks.
struct RemotePrefixOptions {
  std::string url = {};  ///< offload::RemoteServer::parse; empty = none
  Duration ttl{};        ///< that prefixes stay there; 0 = no limit
  /// Longest wait of a look-up for an answer: it begins to bring no chunk up after it.
  Duration deadline = std::chrono::seconds{1};
};

/// The daemon of the node, which keeps prefixes for all processes in place of the store below the
/// host (docs/daemon.md). Rows of a prefix stay there until a step needs them.
///
/// Errors   a daemon that is away, or stands still, makes look-ups miss. Rows that a sequence has
///          not read by then cannot be read any more: Sequence::readable_tokens says from where on
///          they are to be computed again
struct DaemonPrefixOptions {
  std::string socket = {};  ///< its path; empty = no daemon
  std::string user = {};    ///< that it runs as, by name or number; empty = this process's, or root
  Duration deadline = std::chrono::seconds{1};  ///< longest wait of a look-up, and of a read
};

/// Whether a prefix that is kept is loaded.
enum class PrefixLoad : std::uint8_t {
  /// Unless reading its rows is known to take longer than computing its tokens.
  faster,
  always,
};

/// The KV heads, or the layers, that a runtime has of a model whose others are elsewhere, as ranks
/// of tensor parallelism and stages of a pipeline have them: as many as its shape has.
struct ModelShare {
  std::size_t whole = 0;  ///< of the whole model; 0 = the shape has all of them
  std::size_t first = 0;  ///< that the runtime has, counted from 0

  /// Returns how many the whole model has, where the shape has `count`.
  [[nodiscard]] constexpr std::size_t whole_for(std::size_t count) const noexcept {
    return whole == 0 ? count : whole;
  }
};

/// The model that rows are of. Rows of other models, adapters, shapes or shares are never found.
struct PrefixOptions {
  std::string model = {};  ///< a digest of the weights; empty = prefixes are neither kept nor found
  std::string adapter = {};  ///< a digest of the adapter's weights; empty = no adapter
  std::string rope = {};     ///< all parameters of RoPE, in any words
  ModelShare kv_heads = {};
  ModelShare layers = {};
  std::size_t chunk_tokens = 256;  ///< tokens that are kept together; whole blocks
  PrefixLoad load = PrefixLoad::faster;
  RemotePrefixOptions remote = {};
  DaemonPrefixOptions daemon = {};
};

/// Hashes in place of token ids, as engines have them of their own blocks. Each has to stand for
/// all that the rows of its tokens depend on beside the tokens before them: images, for example.
/// Prefixes that are named by hashes are found by hashes alone.
struct PrefixHashes {
  std::span<const std::byte> values = {};  ///< one behind the other
  std::size_t bytes = 0;                   ///< of one: at most 64
  std::size_t tokens = 0;                  ///< that one stands for: a divisor of chunk_tokens
};

struct PrefixQuery {
  /// From the sequence's first token on. The logits of the last token are computed with its step: a
  /// caller that needs them leaves the last token out. An id stands for all that its token's row
  /// depends on: a placeholder of an image needs one that is made of the image.
  std::span<const TokenId> tokens = {};
  std::string salt = {};  ///< a tenant's secret: others' prefixes are never found
  /// Keeps, or finds, the tokens behind the last whole chunk, too, as a chunk of their own that
  /// only a query of exactly these tokens finds. A sequence that is published with all its tokens
  /// goes on from there in another one with the same bits, as if it had never been closed.
  bool with_tail = false;
  PrefixHashes hashes = {};  ///< in place of tokens: a query has either

  /// Returns how many tokens it names.
  [[nodiscard]] std::size_t length() const noexcept {
    if (hashes.values.empty() || hashes.bytes == 0) return tokens.size();
    return hashes.values.size() / hashes.bytes * hashes.tokens;
  }
};

/// Prefixes that were not found, by what became of their first chunk.
struct PrefixMisses {
  std::uint64_t never_stored = 0;
  std::uint64_t evicted = 0;  ///< or gone from the store for another reason
  std::uint64_t corrupt = 0;  ///< its bytes were not those that were written, or not readable
  std::uint64_t late = 0;     ///< it was being written, or was not read by the deadline
  std::uint64_t other_namespace = 0;  ///< nothing of this model, shape and salt was ever stored
  std::uint64_t no_room = 0;          ///< it was to be stored, and nothing could make room for it
  std::uint64_t slower = 0;           ///< it is there, and takes longer to read than to compute
};

/// How look-ups of prefixes ended (Runtime::prefix_counters): look_ups is the sum of hits, partial
/// and misses. With a daemon, look-ups are this runtime's, and the last two are zero: the daemon
/// counts them for all processes.
struct PrefixCounters {
  std::uint64_t look_ups = 0;
  std::uint64_t hits = 0;         ///< all whole chunks of the query were found
  std::uint64_t hits_remote = 0;  ///< of these, hits for which chunks came from another machine
  std::uint64_t partial = 0;      ///< some of them, from the front
  PrefixMisses misses = {};
  std::uint64_t tokens_asked = 0;    ///< of all queries
  std::uint64_t tokens_found = 0;    ///< that sequences began with
  std::uint64_t chunks_evicted = 0;  ///< to make room: of rows, and of indexes
  std::uint64_t bytes_resident = 0;  ///< of chunks that can be found now
};

/// The result of publishing a prefix.
struct PublishReport {
  std::size_t tokens = 0;   ///< that the store has now, of whole chunks and, if asked for, the tail
  std::size_t chunks = 0;   ///< that were written: the store had the others
  std::uint64_t bytes = 0;  ///< of rows and indexes that were written
  bool indexed = false;     ///< whether the store has indexes of all these tokens
};

}  // namespace terrace
