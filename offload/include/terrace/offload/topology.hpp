// Where the machine's cores and memory are, by hwloc.
//
//   auto topology = Topology::discover();
//   for (const NumaNode& node : topology->nodes()) plan(node.cpus, node.memory_bytes);
//
// Where hwloc says nothing about NUMA the machine is one node that holds every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// A CPU as the operating system numbers it.
using CpuIndex = std::uint32_t;

struct NumaNode {
  std::uint32_t index = 0;       ///< the operating system's number
  std::size_t memory_bytes = 0;  ///< 0 where it is not known
  std::vector<CpuIndex> cpus;
};

/// Threads  safe from any thread; copies share one reading of the machine
class Topology {
 public:
  /// Reads the machine. Errors: unsupported when hwloc cannot.
  [[nodiscard]] static Result<Topology> discover();

  /// At least one node.
  [[nodiscard]] std::span<const NumaNode> nodes() const noexcept;

  /// Physical cores; at least 1.
  [[nodiscard]] std::size_t core_count() const noexcept;

  /// Keeps the calling thread on `cpus`. Errors: invalid_argument for an empty set; unsupported
  /// where the system refuses.
  [[nodiscard]] Status bind_thread(std::span<const CpuIndex> cpus) const;

  /// Places pages of the range that are not yet touched on a node.
  /// Errors: invalid_argument for an unknown node; unsupported where the system refuses.
  [[nodiscard]] Status bind_memory(std::span<std::byte> range, std::uint32_t node) const;

 private:
  struct State;
  explicit Topology(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace terrace::offload
