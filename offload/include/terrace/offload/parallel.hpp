// Threads that implement Parallel.
//
//   auto threads = make_parallel({.threads = 4, .name = "device"});
//   (*threads)->for_each(tiles, [&](std::size_t tile) { ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"

namespace terrace::offload {

struct ParallelOptions {
  std::size_t threads = 1;                   ///< the caller's included
  std::optional<std::uint32_t> numa_node{};  ///< keep the workers on its CPUs; none = anywhere
  std::string name = "terrace";              ///< of the threads, for debuggers
};

/// Makes a Parallel of `threads` threads: a oneTBB arena, or plain threads where the build is
/// instrumented for data races (oneTBB is not). One thread needs neither.
///
/// Errors   invalid_argument: zero threads, or a node that the machine lacks; out_of_memory: the
///          system has no thread left
[[nodiscard]] Result<std::unique_ptr<Parallel>> make_parallel(const ParallelOptions& options);

/// Makes a Parallel like make_parallel(), on plain threads in every build.
[[nodiscard]] Result<std::unique_ptr<Parallel>> make_plain_parallel(const ParallelOptions& options);

}  // namespace terrace::offload
