// A check is worth something if a wrong result fails it.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace terrace::testing {

/// Returns whether `check` fails; its failures do not become the test's.
template <typename Check>
bool finds_fault(Check check) {
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    check();
  }
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) return true;
  }
  return false;
}

}  // namespace terrace::testing
