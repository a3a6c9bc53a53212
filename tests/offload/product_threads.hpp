// Threads of this process, for tests that count them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

namespace terrace::testing {

/// Counts the threads with a wanted name.
template <typename Wanted>
std::size_t count_threads(const Wanted& wanted) {
  std::size_t count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (wanted(name)) ++count;
  }
  return count;
}

/// All but the streams of the stand-in for CUDA, which a device has in place of threads.
inline std::size_t product_threads() {
  return count_threads([](const std::string& name) { return name != "cuda_on_host"; });
}

/// Counts the threads of a queue or a lane, because oneTBB starts workers at any time.
inline std::size_t threads_named(const std::string& wanted) {
  return count_threads([&](const std::string& name) { return name == wanted; });
}

}  // namespace terrace::testing
