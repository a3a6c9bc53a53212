#include "terrace/policies/retrieval.hpp"

#include <gmock/gmock.h>

#include <string>

namespace terrace::policies {
namespace {

using testing::HasSubstr;

constexpr KvShape shape{.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 64};

TEST(RetrievalTable, MakesEveryPolicyUnderItsOwnName) {
  for (const RetrievalEntry& entry : retrieval_policies()) {
    const auto policy = make_retrieval_policy(entry.name);
    ASSERT_TRUE(policy.has_value()) << entry.name;
    EXPECT_EQ((*policy)->traits().name, entry.name);
    const auto layout = (*policy)->index_layout(shape);
    ASSERT_TRUE(layout.has_value());
    EXPECT_EQ(layout->empty(), !(*policy)->traits().selects);
  }
}

TEST(MakeRetrievalPolicy, NamesTheKnownOnes) {
  const auto made = make_retrieval_policy("pqcash");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()),
              HasSubstr("full, streaming, oracle, pqcache, qpq"));
}

TEST(MakeRetrievalPolicy, NamesTheKeyOfRetentionPolicies) {
  const auto made = make_retrieval_policy("snapkv");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()), HasSubstr("set retention.policy to snapkv"));
}

TEST(ProductQuantization, RefusesSettingsThatDoNotFit) {
  for (const std::string_view name : {"pqcache", "qpq"}) {
    EXPECT_FALSE(make_retrieval_policy(name, {.pq = {.subspaces = 0}}).has_value()) << name;
    EXPECT_FALSE(make_retrieval_policy(name, {.pq = {.bits = 9}}).has_value()) << name;
    const auto policy = make_retrieval_policy(name, {.pq = {.subspaces = 3}}).value();
    const auto layout = policy->index_layout(shape);
    ASSERT_FALSE(layout.has_value()) << name;
    EXPECT_EQ(layout.error().code, Errc::invalid_argument) << name;
    EXPECT_THAT(std::string(layout.error().message()),
                HasSubstr("pq.subspaces 3 does not divide head_dim"))
        << name;
  }
}

TEST(PqCache, TakesAByteForEachTokenHeadAndSubspace) {
  const auto policy = make_retrieval_policy("pqcache").value();
  const IndexLayout layout = policy->index_layout(shape).value();
  EXPECT_EQ(layout.chunk_bytes, layout.chunk_tokens * 2 * 2);
  EXPECT_EQ(layout.fixed_bytes, 2U * 64 * 64 * sizeof(float));
}

}  // namespace
}  // namespace terrace::policies
