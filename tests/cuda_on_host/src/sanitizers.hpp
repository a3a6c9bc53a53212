// Calls that tell the sanitizers about fibers. The calls do nothing in a build without sanitizers.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
// The file that includes this is not instrumented for threads; the build says so by this name.
#if defined(CUDA_ON_HOST_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

namespace cuda_on_host {

struct StackBounds {
  const void* bottom = nullptr;
  std::size_t bytes = 0;
};

/// Before a switch to the stack `to`. `fake_stack` keeps what the sanitizer knows of the one that
/// is left; null when that is left for good.
inline void leave_stack([[maybe_unused]] void** fake_stack, [[maybe_unused]] StackBounds to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, to.bottom, to.bytes);
#endif
}

/// After a switch. `from` receives the bounds of the stack that was left; null for no stack.
inline void enter_stack([[maybe_unused]] void* fake_stack, [[maybe_unused]] StackBounds* from) {
#if defined(__SANITIZE_ADDRESS__)
  StackBounds left;
  __sanitizer_finish_switch_fiber(fake_stack, &left.bottom, &left.bytes);
  if (from != nullptr) *from = left;
#endif
}

inline void forbid_access([[maybe_unused]] char* begin, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(begin, bytes);
#endif
}

inline void allow_access([[maybe_unused]] char* begin, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(begin, bytes);
#endif
}

#if defined(CUDA_ON_HOST_THREAD_SANITIZER)
inline void* current_sanitizer_fiber() { return __tsan_get_current_fiber(); }
inline void* create_sanitizer_fiber() { return __tsan_create_fiber(0); }
inline void destroy_sanitizer_fiber(void* fiber) { __tsan_destroy_fiber(fiber); }
/// The switch itself orders nothing.
inline void switch_sanitizer_fiber(void* fiber) {
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
}
inline void order_before(char* what) { __tsan_release(what); }
inline void order_after(char* what) { __tsan_acquire(what); }
#else
inline void* current_sanitizer_fiber() { return nullptr; }
inline void* create_sanitizer_fiber() { return nullptr; }
inline void destroy_sanitizer_fiber(void* /*fiber*/) {}
inline void switch_sanitizer_fiber(void* /*fiber*/) {}
inline void order_before(char* /*what*/) {}
inline void order_after(char* /*what*/) {}
#endif

}  // namespace cuda_on_host
