// How fast KV rows cross the link between device and host: rows of `terrace bench pcie`.
//
// Rows have the names of nvbandwidth's tests where they ask the same: `ce` is a copy engine, `sm` a
// kernel that reads the host's memory where it lies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/question.hpp"
#include "pcie/link_ends.hpp"
#include "terrace/core/backend.hpp"

namespace terrace::bench {

/// The backends with measured links. The rows of a backend that cannot be made have the reason.
struct PcieBackends {
  std::function<Result<std::unique_ptr<Backend>>()> host;
  std::function<Result<std::unique_ptr<Backend>>()> device;
  /// The device with host memory on a NUMA node that is not the nearest to it.
  std::function<Result<std::unique_ptr<Backend>>()> far_device;
  std::string host_link = "memcpy";  ///< or "imitated"
  bool quick = false;                ///< small sizes
};

/// The row that times one small copy by the copy engine, from its being asked for to its end being
/// known: what a copy takes before bandwidth counts.
inline constexpr const char* latency_row = "copy_time_host_to_device_ce_64";

/// Bytes of the largest piece, and under `quick`.
inline constexpr std::size_t bulk_bytes = std::size_t{1} << 28;
inline constexpr std::size_t quick_bytes = std::size_t{1} << 22;

/// Returns the name of the row of a piece on the host's link.
[[nodiscard]] std::string host_copy_row(Direction direction, std::size_t bytes);

/// Row sizes of scattered rows.
inline constexpr std::size_t scattered_row_bytes[] = {128,  256,       512,        1024,
                                                      4096, 64 * 1024, 1024 * 1024};

/// Returns the rows of the host's link, then those of the device. A backend is made when its first
/// question is prepared, and kept by the questions.
std::vector<Question> pcie_questions(const PcieBackends& backends);

}  // namespace terrace::bench
