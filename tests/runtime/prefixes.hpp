// A prompt whose prefix one runtime publishes, and another one begins with.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "doubles/fault_store.hpp"
#include "doubles/memory_store.hpp"
#include "runtime/scenario.hpp"

namespace terrace::testing::prefixes {

inline constexpr std::size_t chunk_tokens = 32;
inline constexpr std::size_t prompt = 300;
inline constexpr std::size_t kept = 288;  ///< of the prompt, in whole chunks
inline constexpr std::size_t step_count = 12;
inline constexpr Duration long_enough = std::chrono::minutes(2);

inline std::vector<TokenId> tokens_of(std::size_t count, std::uint32_t first = 7) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

/// A store that outlives runtimes, as a file does.
struct Shelf {
  doubles::MemoryStore* memory = nullptr;
  std::shared_ptr<doubles::FaultStore> store;

  explicit Shelf(std::size_t capacity = SIZE_MAX) {
    auto inner = std::make_unique<doubles::MemoryStore>(
        doubles::MemoryStoreOptions{.capacity_bytes = capacity});
    memory = inner.get();
    store = std::make_shared<doubles::FaultStore>(std::move(inner));
  }
};

inline void keep_prefixes(Scenario& scenario, const Shelf& shelf,
                          std::size_t host_bytes = SIZE_MAX) {
  scenario.runtime.below_host = {.store = shelf.store, .host_bytes = host_bytes};
  scenario.runtime.prefixes = {.model = "weights", .chunk_tokens = chunk_tokens};
}

/// Fills a shelf with a prompt's prefix. Returns what was done.
inline PublishReport publish(const Scenario& scenario, const PrefixQuery& query,
                             std::uint64_t seed = 1) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, seed);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(query.length()).has_value());
  const Result<PublishReport> report = drive.sequence().publish(query);
  EXPECT_TRUE(report.has_value()) << report.error().message();
  return report.value_or(PublishReport{});
}

/// Returns how many tokens of a query a runtime of its own finds.
inline std::size_t found_by(const Scenario& scenario, const PrefixQuery& query) {
  const auto runtime = scenario.open();
  const auto sequence = runtime->open_sequence(query);
  EXPECT_TRUE(sequence.has_value()) << sequence.error().message();
  return (*sequence)->length();
}

/// Publishes a prompt, and returns what steps after its prefix compute.
inline std::vector<StepOutput> publish_and_step(const Scenario& scenario,
                                                const PrefixQuery& query) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(query.length()).has_value());
  const auto report = drive.sequence().publish(query);
  EXPECT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report.value_or(PublishReport{}).tokens, kept);
  EXPECT_TRUE(report.value_or(PublishReport{}).indexed);
  EXPECT_TRUE(drive.sequence().truncate(kept).has_value());
  EXPECT_TRUE(drive.steps(step_count).has_value());
  return drive.outputs();
}

/// Has one sequence compute a prefix and publish it, and another one find it: a prompt after it has
/// the same bits in both.
inline void expect_same_prompt_after(const Scenario& scenario) {
  const std::vector<TokenId> tokens = tokens_of(prompt);
  const Traffic traffic(scenario.runtime.shape, 1);
  std::vector<StepOutput> expected;
  for (const bool stored : {false, true}) {
    const auto runtime = scenario.open();
    auto opened = runtime->open_sequence({.tokens = tokens});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    Drive drive(std::move(*opened), *runtime, traffic);
    EXPECT_EQ(drive.sequence().length(), stored ? kept : 0);
    if (!stored) {
      ASSERT_TRUE(drive.prefill(kept).has_value());
      ASSERT_TRUE(drive.sequence().publish({.tokens = std::span(tokens).first(kept)}).has_value());
    }
    ASSERT_TRUE(drive.prefill(prompt + 25).has_value());
    ASSERT_TRUE(drive.steps(step_count).has_value());
    if (!stored) expected = drive.outputs();
    EXPECT_EQ(drive.outputs(), expected);
    drive.expect_all_rows_right();
  }
}

/// Has a sequence take steps, publish all it has, and be closed: another one goes on from there
/// with the bits that the first one would have had.
inline void expect_same_steps_after_closing(const Scenario& scenario, std::size_t decoded) {
  const std::vector<TokenId> tokens = tokens_of(prompt + decoded);
  const PrefixQuery all{.tokens = tokens, .with_tail = true};
  const Traffic traffic(scenario.runtime.shape, 1);
  std::vector<testing::StepOutput> expected;
  {
    const auto runtime = scenario.open();
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(decoded).has_value());
    const auto report = drive.sequence().publish(all);
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->tokens, tokens.size());
    ASSERT_TRUE(drive.steps(step_count).has_value());
    expected = drive.outputs();
  }
  expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(decoded));
  const auto runtime = scenario.open();
  Drive drive(runtime->open_sequence(all).value(), *runtime, traffic);
  ASSERT_EQ(drive.sequence().length(), tokens.size());
  EXPECT_EQ(runtime->prefix_counters().hits, 1U);
  ASSERT_TRUE(drive.steps(step_count).has_value());
  EXPECT_TRUE(drive.outputs() == expected) << "after " << decoded << " steps";
  drive.expect_all_rows_right();
}

}  // namespace terrace::testing::prefixes
