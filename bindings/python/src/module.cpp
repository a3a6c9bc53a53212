// The module terrace._core: the C interface as classes of Python. The package around it is
// bindings/python/terrace.
#include <nanobind/stl/string.h>

#include "objects.hpp"

namespace nb = nanobind;

namespace terrace::python {

nb::object parsed_json(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(text);
}

}  // namespace terrace::python

NB_MODULE(_core, module) {
  using namespace terrace::python;
  // Daemon threads keep objects past Python's end; the library never prints.
  nanobind::set_leak_warnings(false);
  watch_forks();
  module.attr("__version__") = terrace_version();
  add_config(module);
  add_runtime(module);
  add_sequence(module);
  add_prefix(module);
  add_step(module);
  module.def(
      "close_handles",
      [] {
        const WithoutGil released;
        close_handles();
      },
      "Closes all that is open. The package calls it when Python ends.");
}
