// A made-up model that drives a sequence: every K, V and query is a function of (seed, layer, head,
// position), so that any row can be checked against where it came from.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "doubles/seeded_scheduler.hpp"
#include "policies/selecting_policies.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/runtime/runtime.hpp"

namespace terrace::testing {

class Traffic {
 public:
  Traffic(const KvShape& shape, std::uint64_t seed) : shape_(shape), parts_{{0, seed}} {}

  /// Returns traffic that is the same before `position`, and another one's from there on.
  [[nodiscard]] Traffic branch(std::size_t position, std::uint64_t seed) const;

  /// The row of a token as it must lie in every tier.
  [[nodiscard]] std::vector<std::byte> row(std::size_t layer, std::size_t head,
                                           std::size_t position) const;

  /// Rows [kv_heads, tokens] of a range, as an engine would hold them.
  [[nodiscard]] std::vector<std::byte> rows(std::size_t layer, TokenRange tokens) const;

  /// [query_heads, head_dim]
  [[nodiscard]] std::vector<float> query(std::size_t layer, std::size_t position) const;

  [[nodiscard]] KvTensors tensors(const std::vector<std::byte>& rows,
                                  std::size_t tokens) const noexcept;

  /// The ids of the first `count` tokens: traffic that is the same has the same.
  [[nodiscard]] std::vector<TokenId> tokens(std::size_t count) const;

  [[nodiscard]] const KvShape& shape() const noexcept { return shape_; }

 private:
  struct Part {
    std::size_t begin = 0;
    std::uint64_t seed = 0;
  };
  [[nodiscard]] std::uint64_t seed_at(std::size_t position) const noexcept;

  KvShape shape_;
  std::vector<Part> parts_;  ///< the last one that begins before a position says what it is
};

/// Begins a step of one sequence. The step's status says whether the sequence takes part.
std::unique_ptr<Step> begin_step(Runtime& runtime, Sequence& sequence, Queue& compute,
                                 std::size_t tokens = 1);
/// Ends it, and returns the first thing that failed.
Status end_step(Step& step);

/// Gives back the memory that a prompt's steps had, and lets the peak of device memory begin anew.
void forget_prompt(Runtime& runtime);

/// Output of one step, all layers: [layers, query_heads, head_dim].
using StepOutput = std::vector<float>;

/// One sequence of a runtime and its compute queue, fed by traffic.
class Drive {
 public:
  Drive(Runtime& runtime, const Traffic& traffic);
  Drive(std::unique_ptr<Sequence> sequence, Runtime& runtime, const Traffic& traffic);
  Drive(std::unique_ptr<Sequence> sequence, Runtime& runtime, std::unique_ptr<Queue> compute,
        const Traffic& traffic);
  ~Drive();

  /// Gives a prompt up to `length`, in steps of `piece` tokens; all at once where it is 0. Rows
  /// alone are appended where the prompt attends exactly and nothing goes by its attention.
  Status prefill(std::size_t length, std::size_t piece = 0);
  Status step();
  Status steps(std::size_t count);

  /// Checks that every row of every tier is what traffic made it, and that ranges are a partition.
  void expect_all_rows_right();
  /// Checks the rows that retention has left unchanged.
  void expect_kept_rows_right();

  /// Begins a step of `tokens` tokens, which may have failed to begin: see its status.
  [[nodiscard]] std::unique_ptr<Step> begin_step(std::size_t tokens = 1) {
    return testing::begin_step(runtime_, *sequence_, *compute_, tokens);
  }
  /// Begins a prompt of so many tokens; all of them come with the step.
  [[nodiscard]] std::unique_ptr<Step> begin_prompt(std::size_t tokens);

  [[nodiscard]] Sequence& sequence() noexcept { return *sequence_; }
  [[nodiscard]] Queue& compute() noexcept { return *compute_; }
  [[nodiscard]] const std::vector<StepOutput>& outputs() const noexcept { return outputs_; }

 private:
  Status give_piece(std::size_t tokens);
  Status give_layer(Step& step, std::size_t layer, TokenRange tokens);
  [[nodiscard]] bool appends() const;
  void forget_what_was_read();

  Runtime& runtime_;
  const Traffic& traffic_;
  // Memory that compute reads. After a failure the device may go on reading it until the queue is
  // gone.
  std::vector<std::vector<std::byte>> rows_;
  std::vector<std::vector<float>> queries_;
  std::vector<StepOutput> unfinished_;
  std::unique_ptr<Queue> compute_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<StepOutput> outputs_;
};

/// Makes the backend that the program tests the runtime on. The backend takes those of `options`
/// that it knows, and the scheduler, if any, where work runs on the host.
std::unique_ptr<Backend> make_scenario_backend(const offload::HostBackendOptions& options,
                                               doubles::SeededScheduler* scheduler = nullptr);

/// A compute queue of an embedder's own, and the stream that it uses, if any, which outlives it.
struct OwnQueue {
  std::shared_ptr<void> stream;
  std::unique_ptr<Queue> queue;
};

/// Makes one on the program's backend.
OwnQueue make_own_queue(Backend& backend);

/// How many times fewer rounds of random tests, and variants of a setting, the program takes than
/// one on the host's backend, because its steps take so much longer.
extern const std::size_t scenario_slowness;

/// Rounds of a random test, of `usual` ones: TERRACE_FUZZ_STEPS may say fewer.
std::size_t random_rounds(std::size_t usual);

/// Whether to try the variant of that number, of all that a test counts up: TERRACE_FUZZ_STEPS may
/// say that fewer do.
bool takes_variant(std::size_t number);

/// A runtime on the program's backend, with small defaults that tests change. Where
/// TERRACE_TEST_HOST_PAGES says how many pages of rows may stay on the host, the others leave it
/// for a store as soon as no work reads them.
struct Scenario {
  RuntimeOptions runtime{
      .shape = {.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = Dtype::f16},
      .policy = "pqcache",
      .retrieval = retrieval_options(),
      .budget = {.kind = TokenBudget::Kind::tokens, .value = 48},
      .budget_min = 1,
      .sink_tokens = 4,
      .until_ready = UntilReady::wait,
      .block_tokens = 8,
      .deadline = std::chrono::hours{1},  // a machine that is slow is no fault
  };
  offload::HostBackendOptions backend{};
  doubles::SeededScheduler* scheduler = nullptr;  ///< null = threads

  [[nodiscard]] std::unique_ptr<Runtime> open() const;
  [[nodiscard]] std::unique_ptr<Runtime> open(std::unique_ptr<Backend> on) const;

  /// Bytes that the members of a step share which attend exactly, `tokens` at most, at least.
  [[nodiscard]] std::size_t least_step_bytes(std::size_t tokens) const;
  /// Returns the additional bytes that steps take if device memory has no limit.
  [[nodiscard]] std::size_t spare_step_bytes(std::size_t tokens) const;
};

/// A promise that every selecting policy keeps.
class OfEachPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  OfEachPolicy() { scenario_.runtime.policy = GetParam(); }

  Scenario scenario_;
};

/// The same with a cache that holds less than is wanted.
class OfEachPolicyWithACache : public OfEachPolicy {
 protected:
  OfEachPolicyWithACache() {
    scenario_.runtime.budget.value = 60;
    scenario_.runtime.cache = {.policy = "lru", .admission = "always", .tokens = 96};
  }
};

/// Prefills `length` tokens and returns the outputs of `steps` steps.
std::vector<StepOutput> outputs_of(const Scenario& scenario, std::size_t length, std::size_t steps,
                                   std::uint64_t seed = 1);

}  // namespace terrace::testing
