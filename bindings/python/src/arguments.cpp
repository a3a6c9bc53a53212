#include "arguments.hpp"

#include <nanobind/stl/string.h>

#include <string>

#include "failure.hpp"

namespace nb = nanobind;

namespace terrace::python {
namespace {

/// Returns the text that messages show for an object: Python's, if that is short.
std::string shown(nb::handle object) {
  constexpr std::size_t most = 40;
  const nb::object text = nb::steal(PyObject_Repr(object.ptr()));
  if (!text.is_valid()) clear_error({PyExc_Exception});
  std::string read = text.is_valid() ? utf8_of(text).value_or("") : std::string();
  if (!read.empty() && read.size() <= most && read.find('\n') == std::string::npos) return read;
  return "of type " + nb::cast<std::string>(nb::str(nb::type_name(object.type())));
}

/// Whether an object is a whole number from 0 to `most`, which is written to `number`.
bool take(nb::handle object, std::size_t most, std::size_t& number) {
  const nb::object whole = nb::steal(PyNumber_Index(object.ptr()));
  number = whole.is_valid() ? PyLong_AsSize_t(whole.ptr()) : 0;
  if (PyErr_Occurred() == nullptr) return number <= most;
  clear_error({PyExc_TypeError, PyExc_OverflowError});
  return false;
}

[[noreturn]] void refuse(const std::string& name, nb::handle object, std::size_t most) {
  std::string message = name + " is " + shown(object) + ": give a whole number from 0";
  if (most < std::numeric_limits<std::size_t>::max()) message += " to " + std::to_string(most);
  raise_invalid(message);
}

}  // namespace

void clear_error(std::initializer_list<PyObject*> kinds) {
  for (PyObject* const kind : kinds) {
    if (PyErr_ExceptionMatches(kind) != 0) return PyErr_Clear();
  }
  throw nb::python_error();
}

std::optional<std::string> utf8_of(nb::handle text) {
  Py_ssize_t size = 0;
  const char* const read = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (read != nullptr) return std::string(read, static_cast<std::size_t>(size));
  clear_error({PyExc_UnicodeError});
  return std::nullopt;
}

double read_real(std::string_view name, GivenReal given, std::string_view wanted) {
  const double number = PyFloat_AsDouble(given.object.ptr());
  if (PyErr_Occurred() == nullptr) return number;
  clear_error({PyExc_TypeError, PyExc_OverflowError});
  refuse_object(name, given.object, wanted);
}

std::string read_text(std::string_view name, GivenText given) {
  if (!nb::isinstance<nb::str>(given.object)) refuse_object(name, given.object, "text");
  const std::optional<std::string> text = utf8_of(given.object);
  if (text && text->find('\0') == std::string::npos) return *text;
  refuse_object(name, given.object, "text that UTF-8 has, without the character 0");
}

std::string read_path(std::string_view name, GivenObject given) {
  PyObject* read = nullptr;
  if (PyUnicode_FSConverter(given.object.ptr(), static_cast<void*>(&read)) != 0) {
    const auto path = nb::steal<nb::bytes>(read);
    return {path.c_str(), path.size()};
  }
  clear_error({PyExc_TypeError, PyExc_ValueError});
  refuse_object(name, given.object, "the path of a file");
}

bool read_truth(std::string_view name, GivenTruth given) {
  bool truth = false;
  if (!nb::try_cast(given.object, truth)) refuse_object(name, given.object, "True or False");
  return truth;
}

std::size_t read_number(std::string_view name, GivenNumber given, std::size_t most) {
  std::size_t number = 0;
  if (!take(given.object, most, number)) refuse(std::string(name), given.object, most);
  return number;
}

std::uint32_t read_index(std::string_view name, GivenNumber given) {
  return static_cast<std::uint32_t>(
      read_number(name, given, std::numeric_limits<std::uint32_t>::max()));
}

std::vector<std::size_t> read_numbers(std::string_view name, GivenNumbers given, std::size_t most) {
  const nb::list all = read_list(name, given.object, "a list of numbers");
  std::vector<std::size_t> numbers;
  numbers.reserve(nb::len(all));
  for (const nb::handle one : all) {
    const std::size_t place = numbers.size();
    if (!take(one, most, numbers.emplace_back())) refuse(named(name, place), one, most);
  }
  return numbers;
}

void refuse_object(std::string_view name, nb::handle object, std::string_view wanted) {
  raise_invalid(std::string(name) + " is " + shown(object) + ": give " + std::string(wanted));
}

nb::list read_list(std::string_view name, nb::handle object, std::string_view wanted) {
  const nb::object all = nb::steal(PySequence_List(object.ptr()));
  if (!all.is_valid()) {
    clear_error({PyExc_TypeError});
    refuse_object(name, object, wanted);
  }
  return nb::borrow<nb::list>(all);
}

std::string named(std::string_view name, std::size_t place) {
  return std::string(name) + '[' + std::to_string(place) + ']';
}

}  // namespace terrace::python
