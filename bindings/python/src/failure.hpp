// The answer of a call of the C interface, carried to where the GIL is held, and raised there.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "terrace.h"

namespace terrace::python {

/// A status with its message. The message of TERRACE_OK is empty.
struct Failure {
  terrace_status status = TERRACE_OK;
  std::string message;
};

/// Returns what this thread's last call failed with, if its status is not TERRACE_OK. Needs no GIL.
[[nodiscard]] Failure failure_of(terrace_status status);

/// Makes the exception of terrace.errors for a failure.
[[nodiscard]] nanobind::object exception_of(const Failure& failure);

/// Sets an exception in Python, and returns it to be thrown.
[[nodiscard]] nanobind::python_error raised(const nanobind::object& exception);

/// Throws nanobind::python_error unless the status is TERRACE_OK.
void raise_failure(const Failure& failure);

/// Throws terrace.InvalidArgument.
[[noreturn]] void raise_invalid(const std::string& message);

}  // namespace terrace::python
