#include "runtime/counted_allocations.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t taken = 0;

}  // namespace

std::size_t terrace::testing::allocations() noexcept { return taken; }

// Not inlined: g++ 12 takes the pair of inlined ones for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++taken;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++taken;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
