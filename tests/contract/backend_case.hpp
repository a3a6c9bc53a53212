// The backends that one contract suite is run on: each program of the suite links its own list.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "doubles/seeded_scheduler.hpp"
#include "terrace/core/backend.hpp"

namespace terrace {

inline constexpr Duration patience = std::chrono::seconds(60);

/// A backend and what it needs beside it.
struct MadeBackend {
  std::unique_ptr<doubles::SeededScheduler> scheduler;
  std::unique_ptr<Backend> backend;  ///< null where the machine has no device for it
  /// Makes the queues that are tested; null = make_queue() of the backend.
  std::function<std::unique_ptr<Queue>(Backend&, const char* name)> make_queue = {};
};

/// Limits of a case's backend.
struct CaseLimits {
  std::size_t device_bytes;
  std::size_t host_bytes;
};

/// When the work of a case's queues runs.
enum class Runs {
  beside,  ///< the caller: on threads
  when_waited_for,
  at_once,  ///< before enqueueing it returns
};

struct BackendCase {
  std::string name;
  Runs runs = Runs::beside;
  std::function<MadeBackend(const CaseLimits&)> make;
};

/// The program's list.
std::vector<BackendCase> backend_cases();

/// A case's backend, with limits of 1 MiB device and 2 MiB host memory.
class BackendContract : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    made_ = GetParam().make({device_limit, host_limit});
    backend_ = std::move(made_.backend);
    if (backend_ != nullptr) return;
    if (std::getenv("TERRACE_REQUIRE_GPU") != nullptr) FAIL() << "no device, and one is required";
    GTEST_SKIP() << "no device";
  }

  static constexpr std::size_t device_limit = std::size_t{1} << 20;
  static constexpr std::size_t host_limit = std::size_t{2} << 20;

  [[nodiscard]] bool has_threads() const { return GetParam().runs == Runs::beside; }
  [[nodiscard]] bool runs_at_once() const { return GetParam().runs == Runs::at_once; }
  std::unique_ptr<Queue> queue(const char* name) {
    if (made_.make_queue) return made_.make_queue(*backend_, name);
    return backend_->make_queue({.name = name}).value();
  }

  /// Host memory that the device can reach, too.
  Buffer host_buffer(std::size_t bytes) {
    return backend_->allocate({.bytes = bytes, .tier = Tier::host}).value();
  }

  /// Fills memory of any tier, and reads it back, through a queue.
  void fill(const Buffer& buffer, std::byte value) {
    const Buffer source = host_buffer(buffer.bytes());
    std::fill_n(source.data(), source.bytes(), value);
    copy({buffer.data(), source.data(), buffer.bytes()});
  }
  std::vector<std::byte> read(const Buffer& buffer) {
    const Buffer target = host_buffer(buffer.bytes());
    copy({target.data(), buffer.data(), buffer.bytes()});
    return {target.data(), target.data() + target.bytes()};
  }

 private:
  void copy(const CopyExtent& extent) {
    const auto copies = queue("copy");
    ASSERT_TRUE(copies->copy(Phase::update, {&extent, 1}));
    const Status done = copies->drain(patience);
    ASSERT_TRUE(done) << done.error().message();
  }

  MadeBackend made_;

 protected:
  std::unique_ptr<Backend> backend_;
};

/// Blocks a threaded queue until the gate is opened. Stepped queues are blocked until a wait
/// anyway, and a queue that works at once cannot be blocked.
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
