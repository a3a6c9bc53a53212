#include "failure.hpp"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace terrace::python {

Failure failure_of(terrace_status status) {
  if (status == TERRACE_OK) return {};
  return {status, terrace_message()};
}

nb::object exception_of(const Failure& failure) {
  const nb::object classes = nb::module_::import_("terrace.errors").attr("BY_STATUS");
  const nb::object other = nb::module_::import_("terrace.errors").attr("InternalError");
  const nb::object made = classes.attr("get")(static_cast<int>(failure.status), other);
  // Messages quote paths and texts as they are, which need not be UTF-8.
  return made(nb::steal(PyUnicode_DecodeUTF8(failure.message.data(),
                                             static_cast<Py_ssize_t>(failure.message.size()),
                                             "backslashreplace")));
}

nb::python_error raised(const nb::object& exception) {
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  return {};
}

void raise_failure(const Failure& failure) {
  if (failure.status != TERRACE_OK) throw raised(exception_of(failure));
}

void raise_invalid(const std::string& message) {
  throw raised(exception_of({TERRACE_INVALID_ARGUMENT, message}));
}

}  // namespace terrace::python
