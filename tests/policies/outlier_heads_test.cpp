// Heads that merging would lose most in: which they are, and how many entries they keep.
#include "terrace/policies/outlier_heads.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "terrace/core/dtype.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace {
namespace {

using policies::HeadShares;
using policies::KvHead;
using policies::MatchSurvey;
using policies::OutlierHeads;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr KvShape shape{
    .layers = 5, .query_heads = 8, .kv_heads = 4, .head_dim = 8, .dtype = Dtype::f16};

KvHead head_at(std::uint32_t layer, std::uint32_t head) { return {LayerId{layer}, HeadId{head}}; }

std::size_t keep_of(const OutlierHeads& heads, const KvHead& one, std::size_t mean,
                    std::size_t tokens) {
  return heads.keep_of(
      {.shape = shape, .layer = one.layer, .head = one.head, .mean = mean, .tokens = tokens});
}

TEST(OutlierHeads, DealOutNoMoreThanThereIs) {
  const auto heads = OutlierHeads::create(5, 4, {head_at(3, 1), head_at(0, 2)}).value();
  for (const std::size_t mean : {0U, 1U, 2U, 7U, 100U, 401U}) {
    for (const std::size_t tokens :
         {std::size_t{0}, mean, 3 * mean, 5 * mean, std::size_t{1} << 40}) {
      std::size_t sum = 0;
      for (std::uint32_t i = 0; i < 20; ++i) {
        const std::size_t keep = keep_of(heads, head_at(i / 4, i % 4), mean, tokens);
        EXPECT_GE(2 * keep, mean);
        sum += keep;
      }
      EXPECT_LE(sum, 20 * mean);
      EXPECT_GT(sum + 20, 20 * mean);  // rounding alone is lost
    }
  }
}

TEST(OutlierHeads, KeepAllTokensWhileTheOthersKeepHalfOfTheMean) {
  const auto heads = OutlierHeads::create(5, 4, {head_at(3, 1), head_at(0, 2)}).value();
  EXPECT_EQ(keep_of(heads, head_at(3, 1), 100, 460), 460U);
  EXPECT_EQ(keep_of(heads, head_at(3, 2), 100, 460), 60U);
  EXPECT_EQ(keep_of(heads, head_at(0, 2), 100, 5000), 550U);
  EXPECT_EQ(keep_of(heads, head_at(0, 0), 100, 5000), 50U);
  EXPECT_EQ(keep_of(heads, head_at(0, 2), 100, 40), 100U);
}

TEST(OutlierHeads, AreHeadsOfTheModelEachOnce) {
  const auto message = [](std::vector<KvHead> heads) {
    const auto made = OutlierHeads::create(2, 2, std::move(heads));
    EXPECT_EQ(made.error().code, Errc::invalid_argument);
    return std::string(made.error().message());
  };
  EXPECT_THAT(message({head_at(1, 2)}),
              HasSubstr("outlier head 2 of layer 1: the model has 2 layers of 2 KV heads"));
  EXPECT_THAT(message({head_at(2, 0)}), HasSubstr("outlier head 0 of layer 2"));
  EXPECT_THAT(message({head_at(1, 1), head_at(0, 0), head_at(1, 1)}),
              HasSubstr("outlier head 1 of layer 1 is named twice"));
  EXPECT_THAT(message({head_at(0, 0), head_at(0, 1), head_at(1, 0), head_at(1, 1)}),
              HasSubstr("all 4 KV heads are outlier heads"));
}

TEST(OutlierHeads, AreWhatChelseaGoesBy) {
  const auto heads =
      std::make_shared<const OutlierHeads>(OutlierHeads::create(5, 4, {head_at(3, 1)}).value());
  const auto asked = [](const RetentionPolicy& policy) {
    return policy.keep_of(
        {.shape = shape, .layer = LayerId{3}, .head = HeadId{1}, .mean = 100, .tokens = 300});
  };
  EXPECT_EQ(asked(*policies::make_retention_policy("chelsea").value()), 100U);
  EXPECT_EQ(asked(*policies::make_retention_policy("chelsea", {.outlier_heads = heads}).value()),
            300U);
}

TEST(HeadShares, NameTheLargestOfEqualOnesTheFirst) {
  HeadShares shares;
  for (std::uint32_t i = 0; i < 20; ++i) shares.heads.push_back({head_at(i / 4, i % 4), 0.25});
  shares.heads[13].share = 0.5;
  EXPECT_THAT(shares.largest(0.04), ElementsAre(head_at(3, 1)));
  EXPECT_THAT(shares.largest(0.1), ElementsAre(head_at(0, 0), head_at(3, 1)));
  EXPECT_THAT(shares.largest(0.001), ElementsAre(head_at(3, 1)));
  EXPECT_EQ(shares.largest(1).size(), 20U);
}

/// A window's keys of a KV head: a chain; neighbours have the cosine `likeness`.
std::vector<std::byte> chain(std::size_t tokens, double likeness, std::uint64_t seed) {
  Rng rng(seed);
  const auto draw = [&] {
    std::vector<double> unit(shape.head_dim);
    double norm = 0;
    for (double& x : unit) {
      x = rng.uniform() * 2 - 1;
      norm += x * x;
    }
    for (double& x : unit) x /= std::sqrt(norm);
    return unit;
  };
  std::vector<double> key = draw();
  std::vector<std::byte> rows(tokens * shape.row_bytes());
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::vector<double> other = draw();
    for (std::size_t i = 0; i < key.size(); ++i) {
      key[i] = likeness * key[i] + (1 - likeness) * other[i];
      store_f32(rows.data() + token * shape.row_bytes(), shape.dtype, i,
                static_cast<float>(key[i]));
    }
  }
  return rows;
}

std::vector<const std::byte*> pointers(const std::vector<std::byte>& rows) {
  std::vector<const std::byte*> all;
  for (std::size_t at = 0; at < rows.size(); at += shape.row_bytes()) all.push_back(&rows[at]);
  return all;
}

double cosine(const std::byte* a, const std::byte* b) {
  double dot = 0;
  double of_a = 0;
  double of_b = 0;
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    const auto x = static_cast<double>(load_f32(a, shape.dtype, i));
    const auto y = static_cast<double>(load_f32(b, shape.dtype, i));
    dot += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  return dot / std::sqrt(of_a * of_b);
}

/// The best match of every other key in its chunk, spelt out.
std::vector<double> best_matches(const std::vector<const std::byte*>& keys, std::size_t chunk) {
  std::vector<double> best;
  for (std::size_t begin = 0; begin < keys.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, keys.size());
    if (end - begin < 2) continue;
    for (std::size_t a = begin; a < end; a += 2) {
      double most = -2;
      for (std::size_t b = begin + 1; b < end; b += 2)
        most = std::max(most, cosine(keys[a], keys[b]));
      best.push_back(most);
    }
  }
  return best;
}

TEST(MatchSurvey, SaysWhichShareOfKeysFindsNoMatch) {
  constexpr std::size_t chunk = 16;
  MatchSurvey survey(shape, chunk);
  std::vector<double> all;
  std::vector<std::vector<std::vector<double>>> matches(20);
  for (std::uint32_t i = 0; i < 20; ++i) {
    for (const std::size_t tokens : {101U, 64U}) {
      const auto rows = chain(tokens, 0.4 + 0.025 * i, 2 * i + tokens);
      const auto keys = pointers(rows);
      survey.add(head_at(i / 4, i % 4), keys);
      matches[i].push_back(best_matches(keys, chunk));
      all.insert(all.end(), matches[i].back().begin(), matches[i].back().end());
    }
  }
  const HeadShares found = survey.shares(0.25);
  std::ranges::sort(all);
  EXPECT_NEAR(found.threshold, all[(all.size() - 1) / 4], 1e-6);
  ASSERT_EQ(found.heads.size(), 20U);
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_EQ(found.heads[i].head, head_at(i / 4, i % 4));
    double share = 0;
    for (const std::vector<double>& window : matches[i]) {
      const auto alone =
          std::ranges::count_if(window, [&](double best) { return best < found.threshold - 1e-6; });
      share += static_cast<double>(alone) / static_cast<double>(window.size()) / 2;
    }
    EXPECT_NEAR(found.heads[i].share, share, 1e-12) << i;
  }
  // Keys of the first heads are least alike.
  EXPECT_GT(found.heads.front().share, found.heads.back().share);
  EXPECT_THAT(found.largest(0.04).front().layer, LayerId{0});
}

}  // namespace
}  // namespace terrace
