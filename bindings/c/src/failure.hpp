// How failures leave the library: a code, and a message that the thread keeps. No exception does.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "terrace.h"
#include "terrace/core/result.hpp"

namespace terrace::bindings {

/// Returns the code, and keeps the message for terrace_message().
terrace_status keep_failure(terrace_status code, std::string_view message) noexcept;
terrace_status keep_failure(const Error& error) noexcept;

/// Does a call's `work`, which returns a Status.
template <typename Work>
terrace_status guarded(Work work) noexcept {
  try {
    const Status done = work();
    return done ? TERRACE_OK : keep_failure(done.error());
  } catch (const std::bad_alloc&) {
    return keep_failure(TERRACE_OUT_OF_MEMORY, "the heap has no more memory; close a sequence");
  } catch (const std::exception& fault) {
    return keep_failure(TERRACE_INTERNAL, fault.what());
  } catch (...) {
    return keep_failure(TERRACE_INTERNAL, "an exception of an unknown type");
  }
}

/// Errors: invalid_argument: a null pointer, by the names of the call and the argument.
template <typename T>
Status check_given(T* pointer, std::string_view call, std::string_view argument) {
  if (pointer != nullptr) return {};
  return fail(Errc::invalid_argument, "{}: {} is NULL", call, argument);
}

}  // namespace terrace::bindings
