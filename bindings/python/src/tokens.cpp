#include "tokens.hpp"

#include <nanobind/stl/string.h>

#include <cstring>
#include <limits>
#include <utility>

#include "failure.hpp"
#include "tensors.hpp"

namespace nb = nanobind;

namespace terrace::python {
namespace {

constexpr std::size_t id_max = std::numeric_limits<std::uint32_t>::max();

[[noreturn]] void refuse_id(std::string_view name, std::size_t place, const std::string& id) {
  raise_invalid(named(name, place) + " is " + id + ": give a whole number from 0 to " +
                std::to_string(id_max));
}

/// Reads numbers of one type. They may lie at any address.
template <typename Number>
std::vector<std::uint32_t> read_numbers_of(std::string_view name, const Array& array) {
  const auto count = static_cast<std::size_t>(array.shape[0]);
  const auto* const bytes = static_cast<const std::byte*>(array.data);
  constexpr auto size = static_cast<std::int64_t>(sizeof(Number));
  std::vector<std::uint32_t> ids;
  ids.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Number id = 0;
    std::memcpy(&id, bytes + static_cast<std::int64_t>(i) * array.strides[0] * size, sizeof(id));
    if (!std::in_range<std::uint32_t>(id)) refuse_id(name, i, std::to_string(id));
    ids.push_back(static_cast<std::uint32_t>(id));
  }
  return ids;
}

template <typename Signed, typename Unsigned>
std::vector<std::uint32_t> read_either(std::string_view name, const Array& array) {
  if (array.dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int)) {
    return read_numbers_of<Signed>(name, array);
  }
  return read_numbers_of<Unsigned>(name, array);
}

std::vector<std::uint32_t> read_ids(std::string_view name, const Array& array) {
  const bool whole = array.dtype.lanes == 1 &&
                     (array.dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int) ||
                      array.dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt));
  if (!whole) {
    raise_invalid(std::string(name) + " is of " + name_of(array.dtype) + ": give whole numbers");
  }
  if (array.dimensions != 1) {
    raise_invalid(std::string(name) + " has " + std::to_string(array.dimensions) +
                  " dimensions: give one, the tokens of one sequence");
  }
  check_place({name, array}, /*on_cuda=*/false);
  switch (array.dtype.bits) {
    case 8:
      return read_either<std::int8_t, std::uint8_t>(name, array);
    case 16:
      return read_either<std::int16_t, std::uint16_t>(name, array);
    case 32:
      return read_either<std::int32_t, std::uint32_t>(name, array);
    case 64:
      return read_either<std::int64_t, std::uint64_t>(name, array);
    default:
      raise_invalid(std::string(name) + " is of " + name_of(array.dtype) +
                    ": give whole numbers of 8 to 64 bits");
  }
}

/// Whether an object's memory may hold numbers. Text and bytes hold none that are meant.
bool is_array(nb::handle object) {
  return PyObject_CheckBuffer(object.ptr()) != 0 || nb::hasattr(object, "__dlpack__");
}

}  // namespace

std::vector<std::uint32_t> read_tokens(std::string_view name, GivenObject given) {
  const nb::handle object = given.object;
  if (nb::isinstance<nb::str>(object) || nb::isinstance<nb::bytes>(object)) {
    refuse_object(name, object, "a list or an array of token ids");
  }
  // Arrays that cannot be read, as those of Python's numbers, are read one by one.
  if (Array array; is_array(object) && array.read(object, /*writable=*/false).empty()) {
    return read_ids(name, array);
  }
  const std::vector<std::size_t> numbers = read_numbers(name, {object}, id_max);
  return {numbers.begin(), numbers.end()};
}

Hashes read_hashes(std::string_view name, GivenObject given) {
  Hashes hashes;
  const nb::handle object = given.object;
  if (object.is_none()) return hashes;
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) {
    refuse_object(name, object, "a list of bytes");
  }
  for (const nb::handle each : nb::borrow<nb::sequence>(object)) {
    if (!nb::isinstance<nb::bytes>(each)) {
      refuse_object(named(name, hashes.count), each, "bytes");
    }
    const auto hash = nb::borrow<nb::bytes>(each);
    if (hashes.count == 0) hashes.bytes = hash.size();
    if (hash.size() != hashes.bytes || hash.size() == 0) {
      raise_invalid(named(name, hashes.count) + " has " + std::to_string(hash.size()) +
                    " bytes: give hashes of one size");
    }
    hashes.values.append(hash.c_str(), hash.size());
    ++hashes.count;
  }
  return hashes;
}

std::string read_salt(GivenObject given) {
  const nb::handle object = given.object;
  if (object.is_none()) return {};
  if (nb::isinstance<nb::bytes>(object)) {
    const auto bytes = nb::borrow<nb::bytes>(object);
    return {static_cast<const char*>(bytes.data()), bytes.size()};
  }
  if (nb::isinstance<nb::str>(object)) {
    if (std::optional<std::string> text = utf8_of(object)) return std::move(*text);
    raise_invalid("salt is text that UTF-8 has not: give bytes");
  }
  raise_invalid("salt is of type " + nb::cast<std::string>(nb::str(nb::type_name(object.type()))) +
                ": give text, bytes or None");
}

}  // namespace terrace::python
