// Threads whose stacks have a size of their own.
//
// A plain std::thread takes the process's stack limit: a small one ends the program without a word,
// and a large one counts against a limit of address space for every thread.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace terrace::offload {

/// Used as std::thread is: it must be joined before it goes.
class Thread {
 public:
  static constexpr std::size_t stack_bytes = std::size_t{4} << 20;  ///< kernels keep tiles on it

  Thread() noexcept = default;
  /// Throws std::system_error: the system has no thread, or no memory for a stack, left.
  explicit Thread(std::function<void()> body);
  Thread(Thread&& other) noexcept
      : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept;
  ~Thread();

  [[nodiscard]] bool joinable() const noexcept { return joinable_; }
  void join() noexcept;
  /// Sets the name that debuggers and `top` show, of at most 15 characters.
  void set_name(const char* name) noexcept;

 private:
  pthread_t thread_{};
  bool joinable_ = false;
};

}  // namespace terrace::offload
