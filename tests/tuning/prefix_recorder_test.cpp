#include "terrace/tuning/prefix_recorder.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "terrace/tuning/prefix_tuner.hpp"

namespace terrace::tuning {
namespace {

std::vector<TokenId> tokens(std::uint32_t count, std::uint32_t first = 0) {
  std::vector<TokenId> ids(count);
  for (std::uint32_t i = 0; i < count; ++i) ids[i] = TokenId{first + i};
  return ids;
}

TEST(PrefixRecorder, RecordsPromptsThatTuneReads) {
  const TemporaryFolder folder;
  const ImportedModel model{
      .name = "m",
      .fingerprint = "f",
      .shape = {.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 16}};
  auto recorder = PrefixRecorder::open(folder / "t", {.chunk_tokens = 10, .model = model}).value();
  ASSERT_TRUE(recorder.add(tokens(25), 0));
  ASSERT_TRUE(recorder.add(tokens(47), 60'000)) << "goes on from the first one";
  ASSERT_TRUE(recorder.add(tokens(25, 5), 120'000)) << "the same tokens at other places";
  ASSERT_TRUE(recorder.add(tokens(47)));
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  ASSERT_TRUE(recorder.finish());
  const PrefixTuneResult result =
      tune_prefixes({.trace = folder / "t",
                     .tiers = {{.name = "nvme", .bytes = 1 << 20, .load_bytes_per_second = 1e9}},
                     .token_bytes = 100,
                     .prefill_tokens_per_second = 100})
          .value();
  EXPECT_EQ(result.head.model, "m");
  EXPECT_EQ(result.timed_requests, 3U);
  EXPECT_EQ(result.asked().figures.tokens, 25U + 47 + 25 + 47);
  EXPECT_EQ(result.asked().figures.hit_tokens(), 20U + 40);
  EXPECT_TRUE(check_trace(folder / "t").has_value());
}

TEST(PrefixRecorder, RefusesWhatIsNoPrompt) {
  const TemporaryFolder folder;
  EXPECT_EQ(PrefixRecorder::open(folder / "t", {.chunk_tokens = 0}).error().code,
            Errc::invalid_argument);
  auto recorder = PrefixRecorder::open(folder / "t", {.chunk_tokens = 10}).value();
  EXPECT_EQ(recorder.add({}).error().code, Errc::invalid_argument);
  EXPECT_EQ(PrefixRecorder::open(folder / "no" / "t", {}).error().code, Errc::io_error);
}

}  // namespace
}  // namespace terrace::tuning
