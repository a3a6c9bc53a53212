// The arguments of the calls that an op was enqueued for, until they run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// A copy of arguments: those of one call lie in it, those of several in memory of their own. So
/// what is enqueued for one call allocates nothing.
template <typename Arguments>
class OpCalls {
 public:
  /// `batch` is not empty. Errors: out_of_memory.
  [[nodiscard]] static Result<OpCalls> copy(std::span<const Arguments> batch) {
    OpCalls calls(batch.front());
    if (batch.size() == 1) return calls;
    calls.several_.reset(new (std::nothrow) Arguments[batch.size()]);
    if (calls.several_ == nullptr) {
      return fail(Errc::out_of_memory, "no memory for the arguments of {} calls", batch.size());
    }
    std::ranges::copy(batch, calls.several_.get());
    calls.count_ = batch.size();
    return calls;
  }

  [[nodiscard]] std::span<const Arguments> all() const noexcept {
    return {several_ == nullptr ? &first_ : several_.get(), count_};
  }

 private:
  explicit OpCalls(const Arguments& first) : first_(first) {}

  Arguments first_;
  std::unique_ptr<Arguments[]> several_;
  std::size_t count_ = 1;
};

}  // namespace terrace::offload
