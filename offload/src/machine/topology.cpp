#include "terrace/offload/topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace terrace::offload {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

std::vector<CpuIndex> cpus_of(hwloc_const_bitmap_t set) {
  std::vector<CpuIndex> cpus;
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
    cpus.push_back(static_cast<CpuIndex>(cpu));
  }
  return cpus;
}

std::vector<NumaNode> read_nodes(hwloc_topology_t handle) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(handle, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    nodes.push_back({.index = object->os_index,
                     .memory_bytes = static_cast<std::size_t>(object->attr->numanode.local_memory),
                     .cpus = cpus_of(object->cpuset)});
  }
  if (nodes.empty()) nodes.push_back({.cpus = cpus_of(hwloc_topology_get_topology_cpuset(handle))});
  return nodes;
}

}  // namespace

struct Topology::State {
  struct Free {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
  };
  using Handle = std::unique_ptr<hwloc_topology, Free>;

  Handle handle;
  std::vector<NumaNode> nodes;
  std::size_t core_count = 1;
};

Result<Topology> Topology::discover() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return fail(Errc::unsupported, "hwloc cannot start; the machine's topology is not known");
  }
  State::Handle handle(raw);
  // Only what the process may use: a container or a batch system binds it to some CPUs.
  hwloc_topology_set_flags(
      raw, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM | HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  if (hwloc_topology_load(raw) != 0) {
    return fail(Errc::unsupported, "hwloc cannot read the machine's topology");
  }
  auto state = std::make_shared<State>();
  state->nodes = read_nodes(raw);
  state->core_count =
      static_cast<std::size_t>(std::max(1, hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE)));
  state->handle = std::move(handle);
  return Topology(std::move(state));
}

std::span<const NumaNode> Topology::nodes() const noexcept { return state_->nodes; }

std::size_t Topology::core_count() const noexcept { return state_->core_count; }

Status Topology::bind_thread(std::span<const CpuIndex> cpus) const {
  if (cpus.empty()) return fail(Errc::invalid_argument, "a thread needs at least one CPU");
  const Bitmap set(hwloc_bitmap_alloc());
  for (const CpuIndex cpu : cpus) hwloc_bitmap_set(set.get(), cpu);
  if (hwloc_set_cpubind(state_->handle.get(), set.get(), HWLOC_CPUBIND_THREAD) == 0) return {};
  Error error = make_error(Errc::unsupported, "cannot keep a thread on CPU {} and {} others",
                           cpus.front(), cpus.size() - 1);
  error.native = errno;
  return tl::unexpected(error);
}

Status Topology::bind_memory(std::span<std::byte> range, std::uint32_t node) const {
  const bool known =
      std::ranges::any_of(state_->nodes, [&](const NumaNode& each) { return each.index == node; });
  if (!known) {
    return fail(Errc::invalid_argument, "no NUMA node {}; this machine has {}", node,
                state_->nodes.size());
  }
  const Bitmap set(hwloc_bitmap_alloc());
  hwloc_bitmap_only(set.get(), node);
  if (hwloc_set_area_membind(state_->handle.get(), range.data(), range.size(), set.get(),
                             HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0) {
    return {};
  }
  Error error = make_error(Errc::unsupported, "cannot place memory on NUMA node {}", node);
  error.native = errno;
  return tl::unexpected(error);
}

}  // namespace terrace::offload
