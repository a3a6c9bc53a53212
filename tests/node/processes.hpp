// Processes of a test that may be killed.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>

#include "sockets/descriptor.hpp"
#include "terrace/node/daemon.hpp"

namespace terrace::node {

/// Runs a function in a process of its own, which tells numbers by the descriptor that it gets.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<void(int)>& run) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    from_ = Descriptor(ends[0]);
    const Descriptor to(ends[1]);
    process_ = ::fork();
    if (process_ != 0) return;
    from_ = {};
    run(to.get());
    ::_exit(0);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { kill(); }

  static void tell(int to, std::uint64_t number) {
    if (::write(to, &number, sizeof number) != sizeof number) ::_exit(1);
  }
  /// Waits for the next number. Returns 0 once the process has ended.
  [[nodiscard]] std::uint64_t hear() const {
    std::uint64_t number = 0;
    return ::read(from_.get(), &number, sizeof number) == sizeof number ? number : 0;
  }

  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  /// Returns once the process stands still.
  void stop() const {
    ::kill(process_, SIGSTOP);
    int status = 0;
    ::waitpid(process_, &status, WUNTRACED);
  }
  void go_on() const { ::kill(process_, SIGCONT); }

 private:
  pid_t process_ = 0;
  Descriptor from_;
};

/// A daemon in a process of its own, which serves once this object is there.
class DaemonProcess : public ChildProcess {
 public:
  explicit DaemonProcess(const DaemonOptions& options, const std::function<void()>& prepare = {})
      : ChildProcess([&](int to) {
          if (prepare) prepare();
          auto daemon = Daemon::open(options);
          if (!daemon) ::_exit(1);
          tell(to, 1);
          static_cast<void>((*daemon)->serve());
        }) {
    EXPECT_EQ(hear(), 1U);
  }
};

}  // namespace terrace::node
