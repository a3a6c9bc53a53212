#include "terrace/policies/admission.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace terrace::policies {
namespace {

TEST(RefillAdmission, SumsDemandAndForgetsItExponentially) {
  const auto admission = make_admission_policy("refill", {.horizon_steps = 4}).value();
  admission->want(7, 10);
  EXPECT_DOUBLE_EQ(admission->worth(7), 10);
  admission->end_step();
  EXPECT_NEAR(admission->worth(7), 7.5, 1e-6);
  admission->want(7, 10);
  EXPECT_NEAR(admission->worth(7), 17.5, 1e-5);
  for (int i = 0; i < 100; ++i) admission->end_step();
  EXPECT_LT(admission->worth(7), 1e-6);
}

TEST(RefillAdmission, ExpectsSteadyDemandToPayForTheHorizon) {
  const auto admission = make_admission_policy("refill", {.horizon_steps = 32}).value();
  for (int i = 0; i < 1000; ++i) {
    admission->end_step();
    admission->want(0, 3);
  }
  EXPECT_NEAR(admission->worth(0), 3 * 32, 0.01 * 3 * 32);
}

TEST(RefillAdmission, ForgetsAUnitWhole) {
  const auto admission = make_admission_policy("refill").value();
  admission->want(1, 10);
  admission->forget(1);
  EXPECT_EQ(admission->worth(1), 0);
  EXPECT_EQ(admission->worth(1000), 0) << "never seen";
}

TEST(AlwaysAdmission, FindsEverythingWorthIt) {
  EXPECT_TRUE(std::isinf(make_admission_policy("always").value()->worth(3)));
}

TEST(MakeAdmissionPolicy, NamesTheKnownOnes) {
  const auto made = make_admission_policy("never");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()), testing::HasSubstr("always, refill"));
  EXPECT_FALSE(make_admission_policy("refill", {.horizon_steps = 1}).has_value());
}

}  // namespace
}  // namespace terrace::policies
