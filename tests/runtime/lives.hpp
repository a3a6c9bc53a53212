// Lives of sequences in random schedules: what each of them has been through, and its outputs where
// the same happens to it alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "runtime/batch.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::testing {

struct Event {
  enum class Kind : std::uint8_t { prompt, decode, cut, pause } kind;
  std::size_t tokens = 0;   ///< of a cut: that are left
  std::size_t brought = 0;  ///< tokens of a draft, perhaps with rejected ones
};

/// A part of a life, with the traffic that fed it.
struct Stretch {
  Traffic traffic;
  Dtype queries = Dtype::f32;  ///< to which queries and outputs are rounded
  std::vector<Event> events = {};
};

/// All that one of the sequences has been through.
struct Life {
  Traffic traffic;
  std::vector<Event> events = {};
  std::size_t prompt_left = 0;
  std::size_t longest = 0;         ///< that the sequence has been
  std::size_t outputs_before = 0;  ///< that a fork's parent has
  Dtype queries = Dtype::f32;      ///< to which queries and outputs are rounded
  bool has_hints = true;
  std::size_t begun_with = 0;  ///< tokens of a stored prefix
  /// The prefix has been through one of these, in sequences before; empty = there was none.
  std::vector<std::vector<Stretch>> pasts = {};
};

std::ostream& operator<<(std::ostream& out, const std::vector<Event>& events);
std::ostream& operator<<(std::ostream& out, const Life& life);

/// Returns the outputs of a life alone, its prompts whole and its tokens one by one, after that one
/// of its pasts if it has any.
std::vector<StepOutput> alone(const Scenario& scenario, const Life& life, std::size_t past = 0);

/// Retrieval, with any policy that selects or keeps a window.
Scenario random_scenario(Rng& rng);
/// Sequences keep what a retention policy chooses.
Scenario random_retention(Rng& rng);
/// Sequences hold what a retention policy chooses, and select of the rest.
Scenario random_holding(Rng& rng);

[[nodiscard]] inline bool retains(const Scenario& scenario) {
  return scenario.runtime.retention_policy != "none";
}
[[nodiscard]] inline bool drops(const Scenario& scenario) {
  return retains(scenario) && scenario.runtime.dropped == DroppedTokens::release;
}

/// Returns how many tokens a sequence may bring before a flush is due; 1 where one is. Entries
/// change hands between two steps: a draft may be of the tokens up to there.
std::size_t tokens_to_flush(Sequence& sequence);

/// Returns to how many tokens a sequence may be cut at least. Errors: those of Sequence::
/// await_indexes().
Result<std::size_t> shortest_cut(Sequence& sequence, const Scenario& scenario);

}  // namespace terrace::testing
