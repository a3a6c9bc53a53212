// Random batches of sequences in device memory that is too small for them: pieces of prompts and
// tokens are refused, steps are given up, sequences are cut, paused, forked and closed. A refused
// sequence is as before, and all others continue: outputs have the bits of the same life lived
// alone with enough memory, and outputs of prompts equal attention in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/lives.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::testing {

/// Some random retrieval policy's scenario; `number` goes through the table of policies.
Scenario scenario_under_pressure(Rng& rng, std::size_t number);

/// Memory for what each thread's step shares, and for a part of what all sequences would take.
Scenario with_limit(Scenario scenario, std::size_t threads, Rng& rng);

template <typename T>
Status status_of(const Result<T>& result) {
  return result.map([](const T&) {});
}

/// Sequences of a runtime under pressure. A test of tiers opens them in another way, and does more
/// to them.
class Pressure {
 public:
  /// On a queue of the runtime's backend, or one of the calling thread. `roomy`: of the runtimes in
  /// which lives are lived alone.
  Pressure(Runtime& runtime, Scenario roomy, Rng rng);
  virtual ~Pressure() = default;
  Pressure(const Pressure&) = delete;
  Pressure& operator=(const Pressure&) = delete;

  /// Opens all sequences, and takes so many steps.
  void take_steps(std::size_t count);
  /// Holds all sequences against their lives, and closes them.
  void close_all();

  [[nodiscard]] std::size_t refused() const noexcept { return refused_; }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }

 protected:
  static constexpr std::size_t sequences = 5;
  static constexpr std::size_t longest = 400;

  /// Puts a new sequence, and its life, in place i.
  virtual void open(std::size_t i);
  /// Does something to sequence i between steps, where it is idle and has all of its prompt.
  /// Returns whether it did.
  virtual bool change_more(std::size_t /*i*/) { return false; }

  /// Whether it went well. Nothing but memory may be missing.
  bool went_well(const char* what, const Status& done);
  void announce(std::size_t i, std::size_t tokens);

  Rng& rng() noexcept { return rng_; }
  Runtime& runtime() noexcept { return runtime_; }
  Batch& batch() noexcept { return batch_; }
  Life& life(std::size_t i) noexcept { return lives_[i]; }
  Sequence& sequence(std::size_t i) { return batch_.sequence(i); }
  [[nodiscard]] const Scenario& roomy() const noexcept { return roomy_; }
  /// The seed of traffic that no other sequence has.
  [[nodiscard]] virtual std::uint64_t new_seed() { return 100 * ++opened_; }
  [[nodiscard]] Dtype queries() const noexcept { return queries_; }

 private:
  struct Member {
    BatchMember brings;
    std::size_t accepted = 0;
    std::size_t length = 0;  ///< before the step
  };

  bool is_paused(std::size_t i) { return sequence(i).phase() == SequencePhase::paused; }
  void take_step();
  Member bring(std::size_t i);
  void step(std::span<const Member> members, std::span<const BatchMember> brought);
  void note(const Member& member);
  void change(std::size_t i);
  void end_prompt(std::size_t i);
  void cut(std::size_t i);
  void pause(std::size_t i);
  void fork(std::size_t i, std::size_t place);
  void close(std::size_t i);

  [[nodiscard]] std::vector<StepOutput> alone_as(const Life& life,
                                                 std::span<const StepOutput> outputs) const;
  [[nodiscard]] std::size_t first_difference(const Life& life, std::span<const StepOutput> outputs,
                                             std::span<const StepOutput> expected) const;
  [[nodiscard]] std::vector<bool> certain_tokens(const Life& life) const;
  void expect_exact_prompts(const Life& life, std::span<const StepOutput> outputs) const;
  void expect_exact(const Traffic& traffic, std::size_t position, const StepOutput& output) const;

  Rng rng_;
  Scenario roomy_;
  Dtype queries_;
  Runtime& runtime_;
  OwnQueue own_;
  Batch batch_;
  std::vector<Life> lives_;
  std::uint64_t opened_ = 0;
  std::size_t refused_ = 0;
  std::size_t taken_ = 0;
};

}  // namespace terrace::testing
