// No exception leaves the library: each is a status, with a message. A program of its own, with the
// guard inside: the library does not give it away.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "failure.hpp"

namespace terrace::bindings {
namespace {

TEST(CGuard, MakesStatusesOfExceptions) {
  EXPECT_EQ(guarded([]() -> Status { throw std::bad_alloc(); }), TERRACE_OUT_OF_MEMORY);
  EXPECT_NE(std::string(terrace_message()), "");
  EXPECT_EQ(guarded([]() -> Status { throw std::runtime_error("the message"); }), TERRACE_INTERNAL);
  EXPECT_EQ(std::string(terrace_message()), "the message");
  EXPECT_EQ(guarded([]() -> Status { throw 1; }), TERRACE_INTERNAL);
  EXPECT_NE(std::string(terrace_message()), "the message");
}

TEST(CGuard, CutsAMessageThatIsTooLong) {
  const std::string text(1000, 'x');
  EXPECT_EQ(guarded([&]() -> Status { throw std::runtime_error(text); }), TERRACE_INTERNAL);
  EXPECT_EQ(std::string(terrace_message()), std::string(Error::text_capacity, 'x'));
}

TEST(CGuard, KeepsTheCodeAndTheMessageOfAnError) {
  EXPECT_EQ(guarded([] { return Status(fail(Errc::corrupt, "block {}", 3)); }), TERRACE_CORRUPT);
  EXPECT_EQ(std::string(terrace_message()), "block 3");
  EXPECT_EQ(guarded([] { return Status(); }), TERRACE_OK);
}

}  // namespace
}  // namespace terrace::bindings
