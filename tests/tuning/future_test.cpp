#include "terrace/tuning/future.hpp"

#include <gtest/gtest.h>

namespace terrace::tuning {
namespace {

TEST(LayerFuture, EndsForAUnitWhereItsKeyMeansAnother) {
  RecordedFuture recorded;
  const auto add = [&](const std::vector<offload::WantedUnit>& wanted, bool renamed) {
    recorded.add({.renamed = renamed}, {.wanted = wanted});
  };
  add({{.unit = 1}}, true);
  add({{.unit = 2}}, false);
  add({{.unit = 1}}, true);
  add({{.unit = 1}, {.unit = 2}}, false);
  LayerFuture future(recorded.of(0, 0));
  const auto next = [&] {
    future.advance();
    return std::pair(future.next_step(1), future.next_step(2));
  };
  constexpr std::uint64_t never = Foresight::never;
  EXPECT_EQ(next(), std::pair(never, std::uint64_t{1}));
  EXPECT_EQ(next(), std::pair(never, never));
  EXPECT_EQ(next(), std::pair(std::uint64_t{3}, std::uint64_t{3}));
  EXPECT_EQ(next(), std::pair(never, never));
  EXPECT_EQ(future.next_step(1000), never);
}

}  // namespace
}  // namespace terrace::tuning
