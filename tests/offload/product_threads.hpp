// Threads of this process, for tests that count them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace terrace::testing {

/// All but the streams of the stand-in for CUDA, which a device has in place of threads.
inline std::size_t product_threads() {
  std::size_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name != "cuda_on_host") ++count;
  }
  return count;
}

}  // namespace terrace::testing
