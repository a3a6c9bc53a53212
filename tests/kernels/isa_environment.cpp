// Runs the program's tests on the instruction set that TERRACE_ISA names; without it, on the
// machine's best. A machine that lacks the named one skips them all.
#include <gtest/gtest.h>

#include <cstdlib>

#include "terrace/kernels/isa.hpp"

namespace terrace::testing {
namespace {

class IsaEnvironment final : public ::testing::Environment {
 public:
  void SetUp() override {
    const char* const name = std::getenv("TERRACE_ISA");
    if (name == nullptr) return;
    const Status forced = kernels::host::use_isa(name);
    if (forced) return;
    if (forced.error().code == Errc::unsupported) GTEST_SKIP() << forced.error().message();
    FAIL() << forced.error().message();
  }
};

const ::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new IsaEnvironment);

}  // namespace
}  // namespace terrace::testing
