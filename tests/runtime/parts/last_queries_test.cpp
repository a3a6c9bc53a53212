// The queries of the last tokens, by which retention chooses: those of tokens that are given up
// leave those before them, however many they are.
#include "layer/last_queries.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "terrace/offload/host_backend.hpp"

namespace terrace {
namespace {

constexpr std::size_t window = 8;
constexpr KvShape shape{.layers = 1, .query_heads = 2, .kv_heads = 1, .head_dim = 2};

class LastQueriesOf : public ::testing::Test {
 protected:
  LastQueriesOf() { EXPECT_TRUE(queries_.reserve(*backend_, shape, window).has_value()); }

  /// A step brings tokens; a token's query is its position.
  void bring(std::size_t begin, std::size_t end) {
    std::vector<float> given;
    for (std::size_t position = begin; position < end; ++position) {
      given.insert(given.end(), 4, static_cast<float>(position));
    }
    std::vector<CopyExtent> extents;
    queries_.list_copies({begin, end}, given.data(), 4, extents);
    for (const CopyExtent& one : extents) std::memcpy(one.target, one.source, one.bytes);
  }

  void expect_before(std::size_t end, std::size_t tokens) const {
    const LastQueries::Run run = queries_.before(end);
    ASSERT_EQ(run.first, end - tokens);
    ASSERT_EQ(run.queries.size(), tokens * 4);
    for (std::size_t i = 0; i < run.queries.size(); ++i) {
      const std::size_t token = run.first + i / 4;
      ASSERT_EQ(run.queries[i], static_cast<float>(token));
    }
  }

  std::unique_ptr<Backend> backend_ = offload::HostBackend::create({}).value();
  LastQueries queries_;
};

TEST_F(LastQueriesOf, TokensThatAreGivenUpLeaveThoseBeforeThem) {
  for (const std::size_t given_up : {1U, 7U, 8U, 9U, 15U, 16U, 17U, 38U, 100U}) {
    queries_.clear();
    bring(0, 33);
    bring(33, 33 + given_up);
    expect_before(33, window);
    bring(33, 36);
    expect_before(36, window);
    bring(36, 36 + given_up);
    bring(36, 37);
    expect_before(37, window);
  }
}

TEST_F(LastQueriesOf, AShortSequenceAreAll) {
  bring(0, 3);
  expect_before(3, 3);
  bring(3, 4);
  expect_before(4, 4);
}

TEST_F(LastQueriesOf, TokensBehindAGapAreThoseOfTheGapsEnd) {
  bring(0, 5);
  bring(9, 12);
  expect_before(12, 3);
}

}  // namespace
}  // namespace terrace
