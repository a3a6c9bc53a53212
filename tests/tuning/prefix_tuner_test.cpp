#include "terrace/tuning/prefix_tuner.hpp"

#include <gmock/gmock.h>

#include <string>

#include "core/temporary_folder.hpp"
#include "terrace/tuning/import.hpp"
#include "tuning/trace_bytes.hpp"

namespace terrace::tuning {
namespace {

using testing::HasSubstr;
using testing::StrEq;

/// Three requests of a dialogue, with 8 tokens a chunk, and one of another.
constexpr const char* dialogue =
    R"({"timestamp": 0, "input_length": 20, "hash_ids": [1, 2, 3]}
{"timestamp": 10000, "input_length": 36, "hash_ids": [1, 2, 4, 5, 6]}
{"timestamp": 20000, "input_length": 9, "hash_ids": [8, 9]}
{"timestamp": 30000, "input_length": 40, "hash_ids": [1, 2, 4, 5, 7]}
)";

struct TracedRequests {
  TemporaryFolder folder;
  PrefixTuneRequest request;

  explicit TracedRequests(const char* requests = dialogue) {
    write_bytes(folder / "m.jsonl", requests);
    EXPECT_TRUE(import_mooncake({folder / "m.jsonl", folder / "t"}, {.block_tokens = 8}));
    request = {.trace = folder / "t",
               .tiers = {{.name = "memory", .bytes = 800, .load_bytes_per_second = 10'000},
                         {.name = "nvme", .bytes = 1600, .load_bytes_per_second = 2000}},
               .token_bytes = 10,
               .prefill_tokens_per_second = 100};
  }
};

TEST(TunePrefixes, CountsTokensOfEachTier) {
  TracedRequests traced;
  std::vector<double> shares;
  traced.request.progress = [&](double share) { shares.push_back(share); };
  const PrefixTuneResult result = tune_prefixes(traced.request).value();
  EXPECT_EQ(result.chunk_bytes, 80U);
  EXPECT_EQ(result.timed_requests, 4U);
  const PrefixChoice& asked = result.asked();
  EXPECT_EQ(asked.figures.requests, 4U);
  EXPECT_EQ(asked.figures.tokens, 20U + 36 + 9 + 40);
  // Whole chunks alone: of the first prompt two, of the second four. The third shares none.
  EXPECT_EQ(asked.figures.tiers[0].hit_tokens, 16U) << "1 and 2 were read before";
  EXPECT_EQ(asked.figures.tiers[1].hit_tokens, 16U + 16);
  EXPECT_EQ(asked.figures.missed_tokens, 105U - 48);
  EXPECT_DOUBLE_EQ(asked.saved_seconds[0], 16 / 100.0 - 160 / 10'000.0);
  EXPECT_DOUBLE_EQ(asked.saved_seconds[1], 32 / 100.0 - 320 / 2000.0);
  EXPECT_DOUBLE_EQ(result.prefill_seconds, 1.05);
  EXPECT_FALSE(shares.empty());
}

TEST(TunePrefixes, AsksWhatOtherSizesBring) {
  TracedRequests traced;
  traced.request.tiers[0].bytes = 80;
  traced.request.tiers[1].bytes = 240;
  const PrefixTuneResult result = tune_prefixes(traced.request).value();
  std::vector<std::string> names;
  std::vector<std::vector<std::uint64_t>> sizes;
  std::vector<std::uint64_t> hits;
  for (const PrefixChoice& choice : result.choices) {
    names.push_back(choice.name);
    sizes.push_back(choice.bytes);
    hits.push_back(choice.figures.hit_tokens());
  }
  EXPECT_THAT(names,
              testing::ElementsAre("asked", "memory_x2", "nvme_x2", "nvme_alone", "unlimited"));
  EXPECT_EQ(sizes[1], (std::vector<std::uint64_t>{160, 240}));
  EXPECT_EQ(sizes[2], (std::vector<std::uint64_t>{80, 480}));
  EXPECT_EQ(sizes[3], (std::vector<std::uint64_t>{0, 320}));
  // A file of three chunks has 1, 2 and 4 after the second request, and loses 4 to 8.
  EXPECT_THAT(hits, testing::ElementsAre(32U, 32U, 48U, 40U, 48U));
}

TEST(TunePrefixes, RecommendsTheSizeThatSavesMost) {
  TracedRequests traced;
  EXPECT_THAT(
      recommend(traced.request, tune_prefixes(traced.request).value()),
      StrEq("Keep these sizes: 2 times the memory saves 0.0 %, 2 times the nvme 0.0 %, and no "
            "limits 0.0 % more of the prefill's time."));
  traced.request.tiers[1].bytes = 240;
  EXPECT_THAT(
      recommend(traced.request, tune_prefixes(traced.request).value()),
      HasSubstr(
          "Make nvme 2 times as large: 2 times the memory saves 0.0 %, 2 times the nvme 7.6 %, "));
  traced.request.tiers[1].load_bytes_per_second = 900;
  EXPECT_EQ(recommend(traced.request, tune_prefixes(traced.request).value()),
            "Take a faster nvme: it loads 90 tokens a second, and a prefill computes 100.");
}

TEST(TunePrefixes, RecommendsAFileForAllThatComesAgain) {
  std::string documents;
  for (int i = 0; i < 24; ++i) {
    documents += fmt::format(R"({{"input_length": 8, "hash_ids": [{}]}})", i % 8) + '\n';
  }
  TracedRequests traced(documents.c_str());
  traced.request.tiers.erase(traced.request.tiers.begin());
  traced.request.tiers[0].bytes = 80;
  const PrefixTuneResult result = tune_prefixes(traced.request).value();
  EXPECT_EQ(result.choices[3].name, "nvme_x8");
  EXPECT_EQ(result.choices[4].name, "unlimited") << "8 chunks are all there are";
  EXPECT_THAT(recommend(traced.request, result),
              HasSubstr("Make nvme 8 times as large: 2 times the nvme saves 0.0 %, 8 times the "));
}

TEST(TunePrefixes, SaysThatNothingIsShared) {
  const TracedRequests traced(R"({"input_length": 16, "hash_ids": [1, 2]}
{"input_length": 16, "hash_ids": [3, 4]}
)");
  const PrefixTuneResult result = tune_prefixes(traced.request).value();
  EXPECT_EQ(result.timed_requests, 0U);
  EXPECT_THAT(recommend(traced.request, result), HasSubstr("Store no prefixes"));
}

TEST(TunePrefixes, RefusesWhatItCannotAnswer) {
  TracedRequests traced;
  const auto refusal = [&] {
    const auto result = tune_prefixes(traced.request);
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
    return std::string(result.error().message());
  };
  traced.request.tiers[1].bytes = 79;
  EXPECT_THAT(refusal(), HasSubstr("nvme of 79 B has no room for a chunk of 8 tokens"));
  traced.request.tiers[1].bytes = 80;
  traced.request.prefill_tokens_per_second = -1;
  EXPECT_THAT(refusal(), HasSubstr("a prefill of -1 tokens a second"));
  write_made_up(traced.request.trace, {});
  EXPECT_THAT(refusal(), HasSubstr("is of no prefixes of requests"));
}

}  // namespace
}  // namespace terrace::tuning
