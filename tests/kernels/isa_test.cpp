// Forcing an instruction set, and the error if it is missing.
#include "terrace/kernels/isa.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/highway.h>

namespace terrace::kernels::host {
namespace {

using ::testing::HasSubstr;

class Isa : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(use_isa("auto").has_value()); }
};

TEST_F(Isa, UsesWhatIsForcedOrSaysWhatThereIs) {
  const std::string best(isa_in_use());
  std::size_t worse = SIZE_MAX;
  for (const IsaLevel& level : isa_levels()) {
    const Status forced = use_isa(level.name);
    if (forced) {
      EXPECT_EQ(isa_in_use(), level.name);
      // The place in Highway's tables: the better a target, the lower.
      const std::size_t entry = hwy::GetChosenTarget().GetIndex();
      EXPECT_TRUE(entry < worse || (level.extras != IsaExtras::none && entry == worse))
          << level.name;
      worse = entry;
    } else {
      EXPECT_EQ(forced.error().code, Errc::unsupported);
      EXPECT_THAT(std::string(forced.error().message()), HasSubstr("use auto, "));
      EXPECT_EQ(isa_in_use(), best);
    }
  }
  ASSERT_TRUE(use_isa("auto").has_value());
  EXPECT_EQ(isa_in_use(), best);
}

TEST_F(Isa, ThePlainestIsEverywhere) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers watch one instruction set, the machine's best";
#endif
  EXPECT_TRUE(use_isa("scalar").has_value());
  EXPECT_EQ(isa_in_use(), "scalar");
}

TEST_F(Isa, RefusesUnknownLevels) {
  const Status forced = use_isa("mmx");
  ASSERT_FALSE(forced.has_value());
  EXPECT_EQ(forced.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(forced.error().message()), HasSubstr("isa mmx: no such level"));
}

}  // namespace
}  // namespace terrace::kernels::host
