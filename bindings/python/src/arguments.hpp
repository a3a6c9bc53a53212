// Numbers that Python hands over, read by the names that messages give them: nanobind's own casters
// answer with the whole signature, and say neither which argument does not fit nor why.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <limits>
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

/// Returns a whole number from 0 to `most`. Errors: raises InvalidArgument for anything else.
[[nodiscard]] std::size_t read_number(std::string_view name, GivenNumber given,
                                      std::size_t most = std::numeric_limits<std::size_t>::max());

/// The same for a layer, a head or a position.
[[nodiscard]] std::uint32_t read_index(std::string_view name, GivenNumber given);

/// The same for a list of numbers, or anything that has them one by one.
[[nodiscard]] std::vector<std::size_t> read_numbers(
    std::string_view name, GivenNumbers given,
    std::size_t most = std::numeric_limits<std::size_t>::max());

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

// None comes through, to be refused by name.
template <>
struct has_arg_defaults<terrace::python::GivenNumber> : std::true_type {};
template <>
struct has_arg_defaults<terrace::python::GivenNumbers> : std::true_type {};

}  // namespace nanobind::detail
