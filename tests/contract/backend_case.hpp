// The backends that one contract suite is run on.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/offload/fault_backend.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/offload/sim_backend.hpp"

namespace terrace {

inline constexpr Duration patience = std::chrono::seconds(60);

enum class BackendKind : std::uint8_t { threads, small_ring, seeded, fault, fault_seeded, sim };

struct BackendCase {
  std::string name;
  BackendKind kind = BackendKind::threads;
  std::uint64_t seed = 0;
};

inline std::vector<BackendCase> backend_cases() {
  std::vector<BackendCase> cases{{"HostThreads", BackendKind::threads},
                                 {"HostSmallRing", BackendKind::small_ring},
                                 {"FaultOverThreads", BackendKind::fault},
                                 {"FaultOverSeeded", BackendKind::fault_seeded, 7},
                                 {"Sim", BackendKind::sim}};
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
    cases.push_back({"HostSeed" + std::to_string(seed), BackendKind::seeded, seed});
  }
  return cases;
}

/// A case's backend, with limits of 1 MiB device and 2 MiB host memory.
class BackendContract : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    const BackendKind kind = GetParam().kind;
    if (kind == BackendKind::sim) {
      offload::SimBackendOptions options{.device_memory_limit = device_limit,
                                         .host_memory_limit = host_limit};
      options.costs.call.fill(std::chrono::microseconds(5));
      backend_ = offload::SimBackend::create(options).value();
      return;
    }
    offload::HostBackendOptions options{
        .device_memory_limit = device_limit, .host_memory_limit = host_limit, .device_threads = 2};
    if (kind == BackendKind::small_ring) options.queue_capacity = 8;
    if (kind == BackendKind::seeded || kind == BackendKind::fault_seeded) {
      scheduler_ = std::make_unique<offload::SeededScheduler>(GetParam().seed);
      options.scheduler = scheduler_.get();
    }
    backend_ = offload::HostBackend::create(options).value();
    if (kind == BackendKind::fault || kind == BackendKind::fault_seeded) {
      backend_ = offload::FaultBackend::wrap(std::move(backend_));
    }
  }

  static constexpr std::size_t device_limit = std::size_t{1} << 20;
  static constexpr std::size_t host_limit = std::size_t{2} << 20;

  [[nodiscard]] bool has_threads() const {
    const BackendKind kind = GetParam().kind;
    return kind == BackendKind::threads || kind == BackendKind::small_ring ||
           kind == BackendKind::fault;
  }
  [[nodiscard]] bool moves_bytes() const { return backend_->capabilities().moves_bytes; }
  std::unique_ptr<Queue> queue(const char* name) {
    return backend_->make_queue({.name = name}).value();
  }

  std::unique_ptr<offload::SeededScheduler> scheduler_;
  std::unique_ptr<Backend> backend_;
};

/// Holds a threaded queue up until it is opened; stepped queues hold themselves up until someone
/// waits.
class Gate {
 public:
  explicit Gate(bool closed) : open_(!closed) {}
  ~Gate() { open(); }

  void open() {
    open_.store(true);
    open_.notify_all();
  }
  auto task() {
    return [this] {
      open_.wait(false);
      return std::size_t{0};
    };
  }

 private:
  std::atomic<bool> open_;
};

}  // namespace terrace
