#include "cache/trace.hpp"

#include <gtest/gtest.h>

#include "core/temporary_folder.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::bench {
namespace {

TEST(BenchTrace, SaysThatItWasCut) {
  const TemporaryFolder folder;
  const tuning::MadeUp made{.layers = 2, .wanted = 12, .steps = 10};
  tuning::write_made_up(folder / "t", made);
  constexpr std::size_t whole = 2 * 12 * 10;
  for (const auto& [most, units] : {std::pair{whole + 1, whole}, {whole, whole}}) {
    const auto trace = load_trace(folder / "t", false, most).value();
    EXPECT_EQ(trace->units, units);
    EXPECT_FALSE(trace->truncated);
  }
  for (const std::uint64_t most : {whole / 2, whole / 2 - 1, whole / 2 - 12}) {
    const auto cut = load_trace(folder / "t", false, most).value();
    EXPECT_EQ(cut->units, whole / 2) << "steps are read whole";
    EXPECT_TRUE(cut->truncated);
    EXPECT_EQ(cut->records.back().kind, tuning::TraceRecord::Kind::step_end);
  }
}

}  // namespace
}  // namespace terrace::bench
