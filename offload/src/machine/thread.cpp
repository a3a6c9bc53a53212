#include "terrace/offload/thread.hpp"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>

#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

/// Attributes of a thread with a stack of `bytes`.
class Attributes {
 public:
  explicit Attributes(std::size_t bytes) {
    pthread_attr_init(&attributes_);
    const auto least = static_cast<std::size_t>(sysconf(_SC_THREAD_STACK_MIN));
    pthread_attr_setstacksize(&attributes_, std::max(bytes, least));
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() { pthread_attr_destroy(&attributes_); }
  [[nodiscard]] const pthread_attr_t* get() const noexcept { return &attributes_; }

 private:
  pthread_attr_t attributes_{};
};

}  // namespace

Thread::Thread(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  const Attributes attributes(stack_bytes);
  const int failed = pthread_create(&thread_, attributes.get(), &run, owned.get());
  if (failed != 0) throw std::system_error(failed, std::generic_category());
  static_cast<void>(owned.release());  // the thread deletes it
  joinable_ = true;
}

Thread& Thread::operator=(Thread&& other) noexcept {
  TERRACE_ASSERT(!joinable_);
  thread_ = other.thread_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

Thread::~Thread() { TERRACE_ASSERT(!joinable_); }

void Thread::join() noexcept {
  TERRACE_ASSERT(joinable_);
  pthread_join(thread_, nullptr);
  joinable_ = false;
}

void Thread::set_name(const char* name) noexcept { pthread_setname_np(thread_, name); }

}  // namespace terrace::offload
