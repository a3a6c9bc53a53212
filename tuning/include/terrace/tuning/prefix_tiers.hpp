// Tiers of stored prefixes, simulated: how many tokens of requests each of them has, if they keep
// chunks as terraced and the runtime do (decision 0131).
//
//   TERRACE_ASSIGN(auto tiers, PrefixTiers::create({.tiers = {640, 6400}, .chunk_tokens = 256,
//                                                   .prefill_tokens_per_second = 8000}));
//   for (...) tiers.apply({.arrival_ms = 3000, .chunks = chunks, .tokens = 8192});
//   tiers.figures().tiers[0].hit_tokens
//
// The lowest tier has every chunk that is stored. A tier above it has copies of those that were
// read last. A request goes through four acts:
//   it comes      finds the longest run of its chunks, from the front, that the lowest tier has,
//                 and holds leases on them
//   it reads      each chunk of the run, from the front, in the highest tier that has it; tiers
//                 above keep a copy
//   it computes   all other tokens, at the rate of the prefill; it waits for no other request
//   it ends       its whole chunks that the lowest tier lacks are written there, from the front, as
//                 long as there is room; then its leases end
// A tier without room gives up the chunks that were used longest ago, those at the end of a prefix
// first. The lowest one spares leased chunks.
//
// Requests come in the order in which they are listed. One without a time comes when the one before
// it has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::tuning {

struct PrefixTiersOptions {
  /// Chunks that each tier has room for, from the top; none above one may have no room at all.
  std::vector<std::uint64_t> tiers = {};
  std::size_t chunk_tokens = 0;
  double prefill_tokens_per_second = 0;
};

struct PrefixRequest {
  std::optional<std::uint64_t> arrival_ms = {};
  std::span<const std::uint32_t> chunks = {};  ///< whole ones, from the front, each once
  std::uint64_t tokens = 0;                    ///< all of the prompt, also those of no whole chunk
};

struct PrefixTierFigures {
  std::uint64_t hit_tokens = 0;   ///< found here, and in no tier above
  std::uint64_t chunks_most = 0;  ///< that it had at a time
  std::uint64_t evicted = 0;
};

/// Tokens that were hit in all tiers, and those that were missed, are all tokens.
struct PrefixFigures {
  std::uint64_t requests = 0;
  std::uint64_t overlapping = 0;  ///< requests that came while another one computed
  std::uint64_t tokens = 0;
  std::uint64_t missed_tokens = 0;
  std::uint64_t refused_chunks = 0;  ///< that found no room, for all others were leased
  std::vector<PrefixTierFigures> tiers = {};

  [[nodiscard]] std::uint64_t hit_tokens() const noexcept { return tokens - missed_tokens; }
};

/// Memory   some 60 bytes a chunk that a tier has
/// Threads  one at a time
class PrefixTiers {
 public:
  /// Errors   invalid_argument: no tier, a lowest tier without room, a chunk without tokens, or a
  ///          rate that is not above zero
  [[nodiscard]] static Result<PrefixTiers> create(const PrefixTiersOptions& options);
  PrefixTiers(PrefixTiers&&) noexcept;
  PrefixTiers& operator=(PrefixTiers&&) noexcept;
  ~PrefixTiers();

  /// Takes the next request. `request.chunks` may go afterwards.
  void apply(const PrefixRequest& request);

  /// Returns what was counted. Tokens are those of all requests that came.
  [[nodiscard]] const PrefixFigures& figures() const noexcept;

 private:
  class State;
  explicit PrefixTiers(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace terrace::tuning
