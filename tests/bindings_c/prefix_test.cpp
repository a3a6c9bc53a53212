// Prefixes by calls of C: in one process, by two runtimes on one file after the other.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bindings_c/c_batch.hpp"

namespace terrace::testing {
namespace {

constexpr std::size_t prompt = 100;
constexpr std::size_t kept = 96;  ///< of the prompt, in whole chunks of 32
constexpr std::size_t decoded = 6;

class CPrefix : public ::testing::Test {
 protected:
  CPrefix()
      : path_(std::filesystem::temp_directory_path() /
              ("terrace-c-prefix-" + std::to_string(getpid()))) {
    std::iota(tokens_.begin(), tokens_.end(), 7U);
  }
  ~CPrefix() override { std::filesystem::remove(path_); }

  [[nodiscard]] RuntimeHandle open(const char* key = "tier.rope", const char* value = "") const {
    return open_runtime({{"tier.nvme.path", path_.c_str()},
                         {"tier.nvme.bytes", "8MiB"},
                         {"tier.model", "weights"},
                         {"tier.chunk_tokens", "32"},
                         {key, value}});
  }

  [[nodiscard]] terrace_prefix_query query(const char* salt = "",
                                           std::size_t tokens = prompt) const {
    terrace_prefix_query asked = TERRACE_PREFIX_QUERY_INIT;
    asked.tokens = tokens_.data();
    asked.token_count = tokens;
    asked.salt = salt;
    asked.salt_bytes = std::char_traits<char>::length(salt);
    return asked;
  }

  /// Gives a batch's sequence the prompt.
  static void prefill(CBatch& batch, std::size_t tokens) {
    EXPECT_OK(terrace_sequence_begin_prompt(batch.sequence(0).get(), tokens));
    batch.step(std::vector<BatchMember>{{0, tokens}});
  }

  /// Publishes a prompt of so many tokens.
  [[nodiscard]] terrace_publish_report publish(const char* salt = "",
                                               std::size_t tokens = prompt) const {
    const RuntimeHandle runtime = open();
    const QueueHandle compute = wrap_caller(runtime);
    CBatch batch(runtime.get(), compute.get(), small_shape, 1);
    prefill(batch, tokens);
    terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
    const terrace_prefix_query asked = query(salt, tokens);
    EXPECT_OK(terrace_sequence_publish(batch.sequence(0).get(), &asked, &report));
    return report;
  }

  /// Tokens that a runtime finds.
  [[nodiscard]] std::size_t found(const RuntimeHandle& runtime, const char* salt = "") const {
    const terrace_prefix_query asked = query(salt);
    terrace_sequence* sequence = nullptr;
    std::size_t count = 7;
    EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, &count));
    EXPECT_EQ(terrace_sequence_length(sequence), count);
    terrace_sequence_close(sequence);
    return count;
  }

  std::filesystem::path path_;
  std::vector<std::uint32_t> tokens_ = std::vector<std::uint32_t>(prompt);
};

/// Outputs of steps that decode.
std::vector<StepOutput> decode(CBatch& batch) {
  const std::size_t before = batch.outputs(0).size();
  for (std::size_t i = 0; i < decoded; ++i) batch.step(std::vector<BatchMember>{{0}});
  const std::vector<StepOutput>& all = batch.outputs(0);
  return {all.begin() + static_cast<std::ptrdiff_t>(before), all.end()};
}

TEST_F(CPrefix, OfAnEarlierRuntimeGivesTheSameOutputs) {
  const terrace_publish_report report = publish("", kept);
  EXPECT_EQ(report.tokens, kept);
  EXPECT_EQ(report.chunks, kept / 32);
  EXPECT_GT(report.bytes, kept * small_shape.layers * small_shape.token_bytes());
  EXPECT_EQ(report.indexed, 1);
  const RuntimeHandle without = open_runtime();
  const QueueHandle its_queue = wrap_caller(without);
  CBatch computed(without.get(), its_queue.get(), small_shape, 1);
  prefill(computed, kept);
  const RuntimeHandle runtime = open();
  const QueueHandle compute = wrap_caller(runtime);
  CBatch loaded(runtime.get(), compute.get(), small_shape, 1);
  const terrace_prefix_query asked = query();
  terrace_sequence* sequence = nullptr;
  EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, nullptr));
  loaded.sequence(0).reset(sequence);
  ASSERT_EQ(terrace_sequence_length(sequence), kept);
  EXPECT_EQ(decode(loaded), decode(computed));
}

/// Changes a byte of the place of a file that has these bytes. Returns whether there was one.
bool damage(const std::filesystem::path& path, std::string_view bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t place = all.find(bytes);
  if (place == std::string::npos) return false;
  file.seekp(static_cast<std::streamoff>(place));
  file.put(static_cast<char>(all[place] ^ 1));
  return file.good();
}

TEST_F(CPrefix, SaysHowManyTokensCanStillBeRead) {
  constexpr std::uint32_t position = 50;
  EXPECT_EQ(publish("", kept).tokens, kept);
  const RuntimeHandle runtime = open();
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  const auto row = batch.traffic(0).row(0, 0, position);
  ASSERT_TRUE(damage(path_, {reinterpret_cast<const char*>(row.data()), row.size()}));
  const terrace_prefix_query asked = query();
  terrace_sequence* sequence = nullptr;
  EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, nullptr));
  batch.sequence(0).reset(sequence);
  ASSERT_EQ(terrace_sequence_readable_tokens(sequence), kept);
  std::vector<std::byte> read(row.size());
  EXPECT_EQ(terrace_sequence_read_rows(sequence, 0, 0, &position, 1, read.data(), read.size()),
            TERRACE_CORRUPT);
  const std::size_t readable = terrace_sequence_readable_tokens(sequence);
  EXPECT_LE(readable, position);
  EXPECT_GT(readable, 0U);
  EXPECT_OK(terrace_sequence_truncate(sequence, readable));
  EXPECT_EQ(terrace_sequence_readable_tokens(sequence), readable);
  EXPECT_EQ(terrace_sequence_readable_tokens(nullptr), 0U);
}

TEST_F(CPrefix, IsWrittenOnce) {
  EXPECT_EQ(publish().chunks, kept / 32);
  const terrace_publish_report again = publish();
  EXPECT_EQ(again.tokens, kept);
  EXPECT_EQ(again.chunks, 0U);
  EXPECT_EQ(again.bytes, 0U);
  EXPECT_EQ(again.indexed, 1);
}

TEST_F(CPrefix, IsOfASaltAndOfAllSettingsThatRowsDependOn) {
  EXPECT_EQ(publish("tenant").tokens, kept);
  EXPECT_EQ(found(open(), "tenant"), kept);
  EXPECT_EQ(found(open(), "tenan"), 0U);
  EXPECT_EQ(found(open()), 0U);
  for (const char* key : {"tier.model", "tier.adapter", "tier.rope"}) {
    EXPECT_EQ(found(open(key, "another"), "tenant"), 0U) << key;
  }
}

TEST_F(CPrefix, IsOfTheHeadsAndLayersThatARuntimeHas) {
  EXPECT_EQ(publish().tokens, kept);
  for (const char* key : {"tier.model_kv_heads", "tier.model_layers"}) {
    EXPECT_EQ(found(open(key, "64")), 0U) << key;
  }
  EXPECT_EQ(found(open()), kept);
  for (const char* key : {"tier.first_kv_head", "tier.first_layer"}) {
    const ConfigHandle config = make_config({{"tier.model", "weights"}, {key, "1"}});
    const terrace_shape shape = shape_of(small_shape);
    terrace_runtime* runtime = nullptr;
    expect_failure(terrace_runtime_open(config.get(), &shape, &runtime), TERRACE_INVALID_ARGUMENT,
                   key);
    EXPECT_EQ(runtime, nullptr);
  }
}

TEST_F(CPrefix, IsNamedByHashesInPlaceOfTokens) {
  const RuntimeHandle runtime = open();
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  prefill(batch, kept);
  const std::string hashes(kept / 8 * 5, 'h');
  terrace_prefix_query asked = TERRACE_PREFIX_QUERY_INIT;
  asked.hashes = hashes.data();
  asked.hash_count = kept / 8;
  asked.hash_bytes = 5;
  asked.hash_tokens = 8;
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  EXPECT_OK(terrace_sequence_publish(batch.sequence(0).get(), &asked, &report));
  EXPECT_EQ(report.tokens, kept);
  EXPECT_EQ(found(runtime), 0U) << "tokens are other names";
  terrace_sequence* sequence = nullptr;
  EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, nullptr));
  EXPECT_EQ(terrace_sequence_length(sequence), kept);
  terrace_sequence_close(sequence);
  const auto expect_refused = [&](const char* why) {
    expect_failure(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, nullptr),
                   TERRACE_INVALID_ARGUMENT, why);
  };
  asked.hash_tokens = 7;
  expect_refused("no whole hashes of 7 tokens");
  asked.hash_bytes = 0;
  expect_refused("query.hash_bytes is 0");
  asked.hash_count = SIZE_MAX;
  asked.hash_bytes = 2;
  expect_refused("query.hash_bytes is 2");
  asked.hashes = nullptr;
  expect_refused("query.hashes is NULL");
}

TEST_F(CPrefix, IsNeitherKeptNorFoundWithoutAModel) {
  const RuntimeHandle runtime = open("tier.model", "");
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  prefill(batch, prompt);
  const terrace_prefix_query asked = query();
  expect_failure(terrace_sequence_publish(batch.sequence(0).get(), &asked, nullptr),
                 TERRACE_UNSUPPORTED, "tier.model");
  EXPECT_EQ(found(runtime), 0U);
}

TEST_F(CPrefix, RefusesWhatTheSequenceHasNot) {
  const RuntimeHandle runtime = open();
  const SequenceHandle sequence = open_sequence(runtime);
  const terrace_prefix_query asked = query();
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  expect_failure(terrace_sequence_publish(sequence.get(), &asked, &report),
                 TERRACE_INVALID_ARGUMENT, "100 tokens of a sequence that has 0");
  terrace_prefix_query none = TERRACE_PREFIX_QUERY_INIT;
  EXPECT_OK(terrace_sequence_publish(sequence.get(), &none, &report));
  EXPECT_EQ(report.tokens, 0U);
}

TEST_F(CPrefix, RefusesNullAndImpossibleStructs) {
  const RuntimeHandle runtime = open();
  const SequenceHandle sequence = open_sequence(runtime);
  terrace_sequence* opened = nullptr;
  const auto refused = [&](const terrace_prefix_query* asked, const char* part) {
    std::size_t count = 7;
    expect_failure(terrace_sequence_open_prefix(runtime.get(), nullptr, asked, &opened, &count),
                   TERRACE_INVALID_ARGUMENT, part);
    EXPECT_EQ(opened, nullptr);
    EXPECT_EQ(count, 0U);
    expect_failure(terrace_sequence_publish(sequence.get(), asked, nullptr),
                   TERRACE_INVALID_ARGUMENT, part);
  };
  refused(nullptr, "query is NULL");
  terrace_prefix_query asked = query();
  asked.tokens = nullptr;
  refused(&asked, "query.tokens is NULL");
  asked = query("salt");
  asked.salt = nullptr;
  refused(&asked, "query.salt is NULL");
  asked = query();
  asked.size = 1;
  refused(&asked, "query.size is 1");
  asked = query();
  const auto null_handle = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  null_handle(terrace_sequence_open_prefix(nullptr, nullptr, &asked, &opened, nullptr));
  null_handle(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, nullptr, nullptr));
  null_handle(terrace_sequence_publish(nullptr, &asked, nullptr));
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  report.size = 1;
  expect_failure(terrace_sequence_publish(sequence.get(), &asked, &report),
                 TERRACE_INVALID_ARGUMENT, "report.size is 1");
}

TEST_F(CPrefix, TakesStructsOfOlderPrograms) {
  EXPECT_EQ(publish().tokens, kept);
  const RuntimeHandle runtime = open();
  terrace_prefix_query asked = query();
  asked.size = offsetof(terrace_prefix_query, salt);
  asked.salt_bytes = 99;  // memory after the older struct
  terrace_sequence* sequence = nullptr;
  EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &sequence, nullptr));
  const SequenceHandle owner(sequence);
  EXPECT_EQ(terrace_sequence_length(sequence), kept);
  asked = query();
  asked.size = offsetof(terrace_prefix_query, hashes);
  asked.hash_count = 99;  // memory after the struct of version 0.2.0
  terrace_sequence* twin = nullptr;
  EXPECT_OK(terrace_sequence_open_prefix(runtime.get(), nullptr, &asked, &twin, nullptr));
  const SequenceHandle owner_of_twin(twin);
  EXPECT_EQ(terrace_sequence_length(twin), kept);
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  report.size = offsetof(terrace_publish_report, chunks);
  report.chunks = 99;
  asked.token_count = kept;
  EXPECT_OK(terrace_sequence_publish(sequence, &asked, &report));
  EXPECT_EQ(report.tokens, kept);
  EXPECT_EQ(report.chunks, 99U);
}

TEST_F(CPrefix, IsAnErrorOnceTheRuntimeIsClosed) {
  RuntimeHandle runtime = open();
  const SequenceHandle sequence = open_sequence(runtime);
  runtime.reset();
  terrace_prefix_query none = TERRACE_PREFIX_QUERY_INIT;
  expect_failure(terrace_sequence_publish(sequence.get(), &none, nullptr), TERRACE_INVALID_ARGUMENT,
                 "the runtime was closed");
}

TEST_F(CPrefix, ThatTheFileHasNoRoomForIsOutOfMemory) {
  const RuntimeHandle runtime = open_runtime({{"tier.nvme.path", path_.c_str()},
                                              {"tier.nvme.bytes", "1MiB"},
                                              {"tier.model", "weights"},
                                              {"tier.chunk_tokens", "32"}});
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  constexpr std::size_t many = 4352;  // a little more rows than the file has bytes
  prefill(batch, many);
  std::vector<std::uint32_t> ids(many);
  std::iota(ids.begin(), ids.end(), 7U);
  terrace_prefix_query asked = TERRACE_PREFIX_QUERY_INIT;
  asked.tokens = ids.data();
  asked.token_count = ids.size();
  EXPECT_EQ(terrace_sequence_publish(batch.sequence(0).get(), &asked, nullptr),
            TERRACE_OUT_OF_MEMORY);
  EXPECT_EQ(terrace_sequence_phase(batch.sequence(0).get()), TERRACE_PHASE_IDLE);
  EXPECT_EQ(decode(batch).size(), decoded);
  EXPECT_GT(found(runtime), 0U) << "chunks that were written stay";
}

}  // namespace
}  // namespace terrace::testing
