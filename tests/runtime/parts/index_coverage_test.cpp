#include "layer/index_coverage.hpp"

#include <gmock/gmock.h>

#include <array>

namespace terrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// An index of [10, 100), extended by batches that begin at 100, 120 and 150 up to 160.
IndexCoverage extended() {
  IndexCoverage coverage;
  coverage.start({10, 100});
  for (const std::size_t end : {120U, 150U, 160U}) coverage.extend_to(end, /*as_batch=*/true);
  return coverage;
}

TEST(IndexCoverage, OfANewIndexIsOneBatch) {
  IndexCoverage coverage = extended();
  coverage.lose(std::array<std::size_t, 1>{120});
  coverage.start({5, 50});
  EXPECT_EQ(coverage.tokens(), (TokenRange{5, 50}));
  EXPECT_THAT(coverage.batches(), ElementsAre(5));
  EXPECT_THAT(coverage.lost_ends(), IsEmpty());
  EXPECT_EQ(coverage.trained(), 45U);
  EXPECT_EQ(coverage.fresh_end(), 50U);
}

TEST(IndexCoverage, RemembersTokensOfTheSameBatch) {
  const IndexCoverage coverage = extended();
  constexpr std::size_t all = SIZE_MAX;
  EXPECT_EQ(coverage.remembered_from(130, all), 120U);
  EXPECT_EQ(coverage.remembered_from(120, all), 120U);
  EXPECT_EQ(coverage.remembered_from(99, all), 10U);
  // Groups of 16 are counted from the index's first token.
  EXPECT_EQ(coverage.remembered_from(99, 16), 90U);
  EXPECT_EQ(coverage.remembered_from(99, 1), 99U);
  // Nothing reaches beyond its ends.
  EXPECT_EQ(coverage.remembered_from(160, all), 160U);
  EXPECT_EQ(coverage.remembered_from(10, all), 10U);
}

TEST(IndexCoverage, SaysWhereABatchBegins) {
  const IndexCoverage coverage = extended();
  EXPECT_EQ(coverage.batch_of(149), 120U);
  EXPECT_EQ(coverage.batch_of(10), 10U);
  EXPECT_EQ(coverage.batch_of(3), 10U) << "a rejected draft ends before the first batch";
}

TEST(IndexCoverage, SaysWhereBatchesBehindATokenEnd) {
  const IndexCoverage coverage = extended();
  EXPECT_THAT(coverage.ends_behind(100), ElementsAre(120, 150, 160));
  EXPECT_THAT(coverage.ends_behind(150), ElementsAre(160));
  EXPECT_THAT(coverage.ends_behind(160), IsEmpty());
}

TEST(IndexCoverage, ForgetsWhatIsBehindItsEnd) {
  IndexCoverage coverage = extended();
  coverage.end_at(120);
  EXPECT_EQ(coverage.tokens(), (TokenRange{10, 120}));
  EXPECT_THAT(coverage.batches(), ElementsAre(10, 100));
  EXPECT_EQ(coverage.fresh_end(), 100U);
  coverage.end_at(60);
  EXPECT_EQ(coverage.fresh_end(), 60U);
  coverage.end_at(0);
  EXPECT_TRUE(coverage.tokens().empty());
  EXPECT_THAT(coverage.batches(), IsEmpty());
}

}  // namespace
}  // namespace terrace
