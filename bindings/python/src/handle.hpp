// Handles of the C interface as Python holds them. Calls leave the GIL to other threads, come one
// at a time to a handle, and are refused in the child of a fork, which has the handles but not the
// threads that serve them. Handles that are still open when Python ends are closed then.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>

#include "failure.hpp"
#include "gil.hpp"

namespace terrace::python {

/// Begins to count forks. Called once, when the module is loaded.
void watch_forks();

/// Returns how many forks made this process what it is since the module was loaded.
[[nodiscard]] unsigned forks() noexcept;

/// Raises in the child of a process that has opened a runtime: threads of the libraries below,
/// which a fork does not copy, would be waited for.
void check_may_start_threads();

/// Something to be closed, at the latest when Python ends.
class OpenHandle {
 public:
  OpenHandle() = default;
  OpenHandle(const OpenHandle&) = delete;
  OpenHandle& operator=(const OpenHandle&) = delete;
  virtual ~OpenHandle() = default;
  virtual void close() noexcept = 0;
};

/// Remembers a handle for close_handles(), as long as it lives; closes it where that was called.
void remember(const std::shared_ptr<OpenHandle>& handle);

/// Closes all handles that live, and those that threads of Python open later. Needs no GIL.
void close_handles() noexcept;

template <typename T, void (*close_function)(T*)>
class Handle final : public OpenHandle {
 public:
  /// `what` names it in messages: a literal.
  Handle(std::string_view what, T* opened) : what_(what), handle_(opened), forks_(forks()) {}
  ~Handle() override { close(); }

  /// Runs `call`, which takes the pointer and returns a terrace_status, without the GIL and with no
  /// other call on the handle beside it. Raises what fails. Needs the GIL.
  template <typename Call>
  void use(Call&& call) {
    run<std::unique_lock<std::shared_mutex>>(call);
  }

  /// As use(), for calls that the C interface allows from several threads at once.
  template <typename Call>
  void share(Call&& call) {
    run<std::shared_lock<std::shared_mutex>>(call);
  }

  /// As use(), in a thread without the GIL: returns the failure. Not in the child of a fork.
  template <typename Call>
  Failure call_alone(Call&& call) {
    return locked<std::unique_lock<std::shared_mutex>>(call);
  }

  /// For calls that take several handles: raises in the child of a fork. Needs the GIL.
  void check_process() const {
    if (forks_ == forks()) return;
    raise_invalid(std::string(what_) +
                  " was opened before this process forked, and has no threads here: start the "
                  "process by the method spawn, and open a runtime in it");
  }

  [[nodiscard]] std::shared_lock<std::shared_mutex> lock() { return std::shared_lock(mutex_); }

  /// Returns the handle, NULL where it is closed. Valid while a lock is held.
  [[nodiscard]] T* get() const noexcept { return handle_; }

  /// A handle that is closed stays so. A handle from before a fork is left alone. Needs no
  /// GIL: the caller gives it up where closing may wait.
  void close() noexcept override {
    if (forks_ != forks()) return;
    const std::unique_lock lock(mutex_);
    close_function(handle_);
    handle_ = nullptr;
  }

  [[nodiscard]] bool closed() {
    const std::shared_lock lock(mutex_);
    return handle_ == nullptr;
  }

 private:
  template <typename Lock, typename Call>
  void run(Call& call) {
    check_process();
    Failure failure;
    {
      const WithoutGil released;
      failure = locked<Lock>(call);
    }
    raise_failure(failure);
  }

  template <typename Lock, typename Call>
  Failure locked(Call& call) {
    const Lock lock(mutex_);
    if (handle_ == nullptr) return {TERRACE_INVALID_ARGUMENT, std::string(what_) + " is closed"};
    return failure_of(call(handle_));
  }

  std::string_view what_;
  std::shared_mutex mutex_;
  T* handle_;
  unsigned forks_;
};

/// Makes a handle that is closed when Python ends, if it is still open then.
template <typename H, typename T>
std::shared_ptr<H> hold(std::string_view what, T* opened) {
  auto handle = std::make_shared<H>(what, opened);
  remember(handle);
  return handle;
}

/// Closes a handle and lets other threads of Python run meanwhile. Needs the GIL.
template <typename H>
void close_without_gil(H& handle) {
  const WithoutGil released;
  handle.close();
}

}  // namespace terrace::python
