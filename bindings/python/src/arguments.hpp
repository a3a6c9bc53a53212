// Reading of Python's arguments, with errors that name the argument: nanobind's own casters answer
// with the whole signature, and say neither which argument is wrong nor why.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::python {

/// Any object, until it is read.
struct GivenNumber {
  nanobind::handle object;
};
struct GivenNumbers {
  nanobind::handle object;
};
struct GivenObject {
  nanobind::handle object;
};

/// Returns a whole number from 0 to `most`. Errors: raises InvalidArgument for anything else.
[[nodiscard]] std::size_t read_number(std::string_view name, GivenNumber given,
                                      std::size_t most = std::numeric_limits<std::size_t>::max());

/// Reads a layer, a head or a position.
[[nodiscard]] std::uint32_t read_index(std::string_view name, GivenNumber given);

/// Reads a list of numbers, or any other iterable of numbers.
[[nodiscard]] std::vector<std::size_t> read_numbers(
    std::string_view name, GivenNumbers given,
    std::size_t most = std::numeric_limits<std::size_t>::max());

/// Raises InvalidArgument: `name` is not what has to be given, as "a Queue".
[[noreturn]] void refuse_object(std::string_view name, nanobind::handle object,
                                std::string_view wanted);

/// Returns an object of one of the module's classes. Errors: raises InvalidArgument for another.
template <typename Class>
[[nodiscard]] Class& read_object(std::string_view name, nanobind::handle object,
                                 std::string_view wanted) {
  // Objects that Class.__new__ makes have nothing in them yet.
  if (!nanobind::isinstance<Class>(object) || !nanobind::inst_ready(object)) {
    refuse_object(name, object, wanted);
  }
  return *nanobind::inst_ptr<Class>(object);
}

/// Returns the name of an entry of a list: name[place].
[[nodiscard]] std::string named(std::string_view name, std::size_t place);

/// Returns the entries of a list, or of anything that has them one by one. Errors: raises
/// InvalidArgument for anything else.
[[nodiscard]] nanobind::list read_list(std::string_view name, nanobind::handle object,
                                       std::string_view wanted);

}  // namespace terrace::python

namespace nanobind::detail {

template <>
struct type_caster<terrace::python::GivenNumber> {
  NB_TYPE_CASTER(terrace::python::GivenNumber, const_name("int"))
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    value.object = source;
    return true;
  }
};

template <>
struct type_caster<terrace::python::GivenNumbers> {
  NB_TYPE_CASTER(terrace::python::GivenNumbers, const_name("collections.abc.Sequence[int]"))
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    value.object = source;
    return true;
  }
};

template <>
struct type_caster<terrace::python::GivenObject> {
  NB_TYPE_CASTER(terrace::python::GivenObject, const_name("object"))
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    value.object = source;
    return true;
  }
};

// None is let through, so that the error can name the argument.
template <>
struct has_arg_defaults<terrace::python::GivenObject> : std::true_type {};
template <>
struct has_arg_defaults<terrace::python::GivenNumber> : std::true_type {};
template <>
struct has_arg_defaults<terrace::python::GivenNumbers> : std::true_type {};

}  // namespace nanobind::detail
