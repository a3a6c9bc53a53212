// Gives up Python's lock while a call works.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace terrace::python {

/// Leaves the GIL to other threads as long as it lives.
///
/// Before 3.14 CPython ends a daemon thread that asks for the GIL once Python ends: by an unwinding
/// that functions without exceptions, as nanobind's, cannot let pass, so that the process aborts.
/// Here such a thread waits for the end of the process, as it does in CPython from 3.14 on.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace terrace::python
