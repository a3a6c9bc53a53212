// Sequences by calls of C.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "bindings_c/c_batch.hpp"

namespace terrace::testing {
namespace {

/// A sequence with a finished prompt.
class CSequence : public ::testing::Test {
 protected:
  static constexpr std::size_t prompt = 100;

  CSequence() {
    EXPECT_OK(terrace_sequence_begin_prompt(sequence(), prompt));
    EXPECT_THAT(batch_.step(std::vector<BatchMember>{{0, prompt}}),
                ::testing::ElementsAre(TERRACE_OK));
  }
  terrace_sequence* sequence() { return batch_.sequence(0).get(); }
  void decode() {
    EXPECT_THAT(batch_.step(std::vector<BatchMember>{{0}}), ::testing::ElementsAre(TERRACE_OK));
  }
  nlohmann::json counters() {
    const char* text = nullptr;
    EXPECT_OK(terrace_sequence_counters(sequence(), &text));
    return nlohmann::json::parse(text);
  }
  /// Expects the rows of a sequence to be those of the traffic.
  void expect_rows_right(terrace_sequence* of) {
    std::vector<std::uint32_t> positions(terrace_sequence_length(of));
    std::iota(positions.begin(), positions.end(), 0U);
    std::vector<std::byte> rows(positions.size() * small_shape.row_bytes());
    EXPECT_OK(terrace_sequence_read_rows(of, 1, 1, positions.data(), positions.size(), rows.data(),
                                         rows.size()));
    std::vector<std::byte> expected;
    for (const std::uint32_t position : positions) {
      const auto row = batch_.traffic(0).row(1, 1, position);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(rows, expected);
  }

  RuntimeHandle runtime_ = open_runtime({{"cache.policy", "lru"}});
  QueueHandle compute_ = wrap_caller(runtime_);
  CBatch batch_{runtime_.get(), compute_.get(), small_shape, 1};
};

TEST_F(CSequence, HasRowsOfItsPrompt) {
  EXPECT_EQ(terrace_sequence_length(sequence()), prompt);
  EXPECT_EQ(terrace_sequence_phase(sequence()), TERRACE_PHASE_IDLE);
  expect_rows_right(sequence());
}

TEST_F(CSequence, WaitsForItsIndex) {
  EXPECT_OK(terrace_sequence_await_indexes(sequence()));
  EXPECT_EQ(terrace_sequence_index_ready(sequence()), 1);
}

TEST_F(CSequence, IsTruncated) {
  EXPECT_OK(terrace_sequence_truncate(sequence(), 70));
  EXPECT_EQ(terrace_sequence_length(sequence()), 70U);
  expect_rows_right(sequence());
  expect_failure(terrace_sequence_truncate(sequence(), 71), TERRACE_INVALID_ARGUMENT, "71");
}

TEST_F(CSequence, PausesAndResumes) {
  expect_failure(terrace_sequence_resume(sequence()), TERRACE_INVALID_ARGUMENT, "resume");
  EXPECT_OK(terrace_sequence_pause(sequence()));
  EXPECT_EQ(terrace_sequence_phase(sequence()), TERRACE_PHASE_PAUSED);
  expect_failure(terrace_sequence_pause(sequence()), TERRACE_INVALID_ARGUMENT, "pause");
  EXPECT_OK(terrace_sequence_resume(sequence()));
  decode();
}

TEST_F(CSequence, ForksIntoATwinThatOutlivesIt) {
  terrace_sequence* twin = nullptr;
  ASSERT_EQ(terrace_sequence_fork(sequence(), &twin), TERRACE_OK) << terrace_message();
  const SequenceHandle owner(twin);
  EXPECT_EQ(terrace_runtime_sequences(runtime_.get()), 2U);
  batch_.sequence(0).reset();
  EXPECT_EQ(terrace_sequence_length(twin), prompt);
  expect_rows_right(twin);
}

TEST_F(CSequence, CountsWhatItHasDone) {
  for (int i = 0; i < 4; ++i) decode();
  const auto json = counters();
  EXPECT_EQ(json.at("length"), prompt + 4);
  EXPECT_EQ(json.at("steps"), 5);
  EXPECT_EQ(json.at("budget_tokens"), 48);
  EXPECT_GT(json.at("bytes").at("offload"), 0);
  const auto& cache = json.at("cache");
  EXPECT_GT(cache.at("rows_hit").get<int>() + cache.at("rows_missed").get<int>(), 0);
  EXPECT_TRUE(json.at("waits").contains("compute"));
  EXPECT_EQ(json.at("retention").at("flushes"), 0);
  EXPECT_EQ(json.at("mass_samples"), 0);
}

TEST(CSequences, SampleTheAttentionsMass) {
  const RuntimeHandle runtime = open_runtime({{"stats.mass_every", "2"}});
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  terrace_sequence* const sequence = batch.sequence(0).get();
  EXPECT_OK(terrace_sequence_begin_prompt(sequence, 100));
  batch.step(std::vector<BatchMember>{{0, 100}});
  for (int i = 0; i < 6; ++i) batch.step(std::vector<BatchMember>{{0}});
  const char* text = nullptr;
  EXPECT_OK(terrace_sequence_counters(sequence, &text));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.at("mass_samples"), 3);
  EXPECT_GT(json.at("attention_mass").get<double>(), 0.3);
  EXPECT_LE(json.at("attention_mass").get<double>(), 3);
}

TEST_F(CSequence, RefusesRowsThatAreNotThere) {
  std::vector<std::byte> row(small_shape.row_bytes());
  const std::uint32_t last = prompt - 1;
  const std::uint32_t behind = prompt;
  const auto read = [&](std::uint32_t layer, std::uint32_t head, const std::uint32_t* position,
                        std::size_t bytes) {
    return terrace_sequence_read_rows(sequence(), layer, head, position, 1, row.data(), bytes);
  };
  EXPECT_OK(read(0, 0, &last, row.size()));
  EXPECT_EQ(read(2, 0, &last, row.size()), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 2, &last, row.size()), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, &behind, row.size()), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, &last, row.size() - 1), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(read(0, 0, nullptr, row.size()), TERRACE_INVALID_ARGUMENT);
  EXPECT_EQ(terrace_sequence_read_rows(sequence(), 0, 0, &last, 1, nullptr, row.size()),
            TERRACE_INVALID_ARGUMENT);
}

TEST_F(CSequence, IsAnErrorOnceTheRuntimeIsClosed) {
  runtime_.reset();
  std::vector<std::byte> row(small_shape.row_bytes());
  const std::uint32_t position = 0;
  terrace_sequence* twin = nullptr;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "the runtime was closed");
  };
  refused(terrace_sequence_begin_prompt(sequence(), 5));
  refused(terrace_sequence_truncate(sequence(), 5));
  refused(terrace_sequence_fork(sequence(), &twin));
  refused(terrace_sequence_pause(sequence()));
  refused(terrace_sequence_resume(sequence()));
  refused(terrace_sequence_await_indexes(sequence()));
  refused(terrace_sequence_read_rows(sequence(), 0, 0, &position, 1, row.data(), row.size()));
  EXPECT_EQ(twin, nullptr);
  EXPECT_EQ(terrace_sequence_length(sequence()), prompt);
  EXPECT_EQ(counters().at("length"), prompt);
}

TEST(CSequences, SayWhatTheyNeed) {
  const RuntimeHandle runtime = open_runtime({{"retrieval.policy", "qpq"}});
  terrace_needs needs = TERRACE_NEEDS_INIT;
  EXPECT_OK(terrace_sequence_needs(open_sequence(runtime).get(), &needs));
  EXPECT_GT(needs.query_window_tokens, 0U);
  EXPECT_EQ(needs.pre_rope_keys, 0);
  const RuntimeHandle without = open_runtime();
  EXPECT_OK(terrace_sequence_needs(open_sequence(without).get(), &needs));
  EXPECT_EQ(needs.query_window_tokens, 0U);
}

TEST(CSequences, AreRefusedWhereTheyCanHaveNoRoom) {
  const RuntimeHandle runtime = open_runtime({{"device.memory", "1MiB"}});
  terrace_sequence_options options = TERRACE_SEQUENCE_OPTIONS_INIT;
  options.expected_tokens = 1'000'000;
  ASSERT_GT(terrace_runtime_device_bytes(runtime.get(), options.expected_tokens), 1U << 20);
  terrace_sequence* sequence = nullptr;
  expect_failure(terrace_sequence_open(runtime.get(), &options, &sequence), TERRACE_OUT_OF_MEMORY,
                 "1000000 tokens");
  const std::string said = terrace_message();
  EXPECT_NE(said.find("device.memory is 1 MiB; raise it"), std::string::npos) << said;
  EXPECT_EQ(sequence, nullptr);
  options.expected_tokens = 100;
  EXPECT_OK(terrace_sequence_open(runtime.get(), &options, &sequence));
  terrace_sequence_close(sequence);
}

TEST(CSequences, RefuseNull) {
  const RuntimeHandle runtime = open_runtime();
  const SequenceHandle sequence = open_sequence(runtime);
  terrace_sequence* opened = nullptr;
  terrace_needs needs = TERRACE_NEEDS_INIT;
  const char* text = nullptr;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  refused(terrace_sequence_open(nullptr, nullptr, &opened));
  refused(terrace_sequence_open(runtime.get(), nullptr, nullptr));
  refused(terrace_sequence_needs(nullptr, &needs));
  refused(terrace_sequence_needs(sequence.get(), nullptr));
  refused(terrace_sequence_begin_prompt(nullptr, 1));
  refused(terrace_sequence_truncate(nullptr, 0));
  refused(terrace_sequence_fork(nullptr, &opened));
  refused(terrace_sequence_fork(sequence.get(), nullptr));
  refused(terrace_sequence_pause(nullptr));
  refused(terrace_sequence_resume(nullptr));
  refused(terrace_sequence_await_indexes(nullptr));
  refused(terrace_sequence_read_rows(nullptr, 0, 0, nullptr, 0, nullptr, 0));
  refused(terrace_sequence_counters(nullptr, &text));
  refused(terrace_sequence_counters(sequence.get(), nullptr));
  EXPECT_EQ(terrace_sequence_length(nullptr), 0U);
  EXPECT_EQ(terrace_sequence_phase(nullptr), TERRACE_PHASE_LOST);
  EXPECT_EQ(terrace_sequence_index_ready(nullptr), 0);
  terrace_sequence_close(nullptr);
}

}  // namespace
}  // namespace terrace::testing
