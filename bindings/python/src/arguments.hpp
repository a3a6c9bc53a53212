// Reading of Python's arguments, with errors that name the argument: nanobind's own casters answer
// with the whole signature, and say neither which argument is wrong nor why.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::python {

/// Any object, until it is read: None, too, so that the error can name the argument. Signatures say
/// what is meant.
struct GivenNumber {
  static constexpr auto meant = nanobind::detail::const_name("int");
  nanobind::handle object;
};
struct GivenReal {
  static constexpr auto meant = nanobind::detail::const_name("float");
  nanobind::handle object;
};
struct GivenNumbers {
  static constexpr auto meant = nanobind::detail::const_name("collections.abc.Sequence[int]");
  nanobind::handle object;
};
struct GivenText {
  static constexpr auto meant = nanobind::detail::const_name("str");
  nanobind::handle object;
};
struct GivenTruth {
  static constexpr auto meant = nanobind::detail::const_name("bool");
  nanobind::handle object;
};
struct GivenArray {
  static constexpr auto meant = nanobind::detail::const_name("typing.Any");
  nanobind::handle object;
};
struct GivenObject {
  static constexpr auto meant = nanobind::detail::const_name("object");
  nanobind::handle object;
};

template <typename T>
concept Given = requires(T given) {
  T::meant;
  given.object;
};

/// Clears the error that Python has set, which is one of these. Raises any other, as a
/// KeyboardInterrupt.
void clear_error(std::initializer_list<PyObject*> kinds);

/// Returns a text of Python's in UTF-8, or nothing if UTF-8 has not all of it.
[[nodiscard]] std::optional<std::string> utf8_of(nanobind::handle text);

/// Returns a whole number from 0 to `most`. Errors: raises InvalidArgument for anything else.
[[nodiscard]] std::size_t read_number(std::string_view name, GivenNumber given,
                                      std::size_t most = std::numeric_limits<std::size_t>::max());

/// Reads a layer, a head or a position.
[[nodiscard]] std::uint32_t read_index(std::string_view name, GivenNumber given);

/// Reads a list of numbers, or any other iterable of numbers.
[[nodiscard]] std::vector<std::size_t> read_numbers(
    std::string_view name, GivenNumbers given,
    std::size_t most = std::numeric_limits<std::size_t>::max());

/// Reads a number. Errors: raises InvalidArgument for anything else, as `wanted` has it.
[[nodiscard]] double read_real(std::string_view name, GivenReal given,
                               std::string_view wanted = "a number");

/// Reads a text that C can take. Errors: raises InvalidArgument for anything else.
[[nodiscard]] std::string read_text(std::string_view name, GivenText given);

/// Reads the path of a file, as os.fsencode. Errors: raises InvalidArgument for anything else.
[[nodiscard]] std::string read_path(std::string_view name, GivenObject given);

[[nodiscard]] bool read_truth(std::string_view name, GivenTruth given);

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

template <terrace::python::Given T>
struct type_caster<T, int> {
  NB_TYPE_CASTER(T, T::meant)
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    value.object = source;
    return true;
  }
};

template <terrace::python::Given T>
struct has_arg_defaults<T> : std::true_type {};

}  // namespace nanobind::detail
