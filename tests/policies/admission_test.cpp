#include "terrace/policies/admission.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace terrace::policies {
namespace {

TEST(RefillAdmission, SumsDemandAndForgetsItExponentially) {
  const auto admission = make_admission_policy("refill", {.horizon_steps = 4}).value();
  admission->resize(10);
  admission->want(7, 10, false);
  EXPECT_DOUBLE_EQ(admission->worth(7), 10);
  admission->end_step();
  EXPECT_NEAR(admission->worth(7), 7.5, 1e-6);
  admission->want(7, 10, false);
  EXPECT_NEAR(admission->worth(7), 17.5, 1e-5);
  for (int i = 0; i < 100; ++i) admission->end_step();
  EXPECT_LT(admission->worth(7), 1e-6);
}

TEST(RefillAdmission, ExpectsSteadyDemandToPayForTheHorizon) {
  const auto admission = make_admission_policy("refill", {.horizon_steps = 32}).value();
  admission->resize(1);
  for (int i = 0; i < 1000; ++i) {
    admission->end_step();
    admission->want(0, 3, false);
  }
  EXPECT_NEAR(admission->worth(0), 3 * 32, 0.01 * 3 * 32);
}

TEST(RefillAdmission, ForgetsAUnitWhole) {
  const auto admission = make_admission_policy("refill").value();
  admission->resize(2);
  admission->want(1, 10, false);
  admission->forget(1);
  EXPECT_EQ(admission->worth(1), 0);
}

TEST(RefillAdmission, SpendsOnlyWhatHitsHaveSaved) {
  const auto admission = make_admission_policy("refill").value();
  admission->resize(2);
  admission->want(0, 1000, false);
  EXPECT_FALSE(admission->pay(1)) << "a miss saves nothing";
  admission->want(1, 100, true);
  EXPECT_TRUE(admission->pay(64));
  EXPECT_FALSE(admission->pay(64));
  EXPECT_TRUE(admission->pay(36));
  admission->give_back(36);
  EXPECT_TRUE(admission->pay(36));
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
