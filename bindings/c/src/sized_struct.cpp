#include "sized_struct.hpp"

#include "terrace/core/version.hpp"

namespace terrace::bindings {

Status check_struct_size(std::size_t size, std::size_t size_min, std::string_view name) {
  const bool fits = size >= size_min && size <= struct_bytes_max && size % alignof(void*) == 0;
  if (fits) return {};
  return fail(Errc::invalid_argument,
              "{}.size is {}; begin with the macro TERRACE_..._INIT of the struct", name, size);
}

Status check_unknown_fields(const std::byte* fields, std::size_t bytes, std::string_view name) {
  const bool silent =
      std::all_of(fields, fields + bytes, [](std::byte one) { return one == std::byte{0}; });
  if (silent) return {};
  return fail(Errc::unsupported,
              "{} sets fields that library version {} does not know; leave them 0, or update it",
              name, version());
}

}  // namespace terrace::bindings
