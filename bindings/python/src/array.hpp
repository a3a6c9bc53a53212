// An array of another library (NumPy, PyTorch, whatever speaks DLPack or the buffer protocol), as
// an argument of this module's functions: memory that is not copied, and the object that owns it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::python {

/// The parts of an array that are read. Strides count numbers.
struct Array {
  static constexpr std::size_t dimensions_max = 4;

  void* data = nullptr;
  nanobind::dlpack::dtype dtype;
  int device = 0;
  std::size_t dimensions = 0;
  std::array<std::int64_t, dimensions_max> shape{};
  std::array<std::int64_t, dimensions_max> strides{};

  [[nodiscard]] std::size_t numbers() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return numbers() * dtype.bits / 8; }

  /// Reads `object`; false where it is no array, has too many dimensions, or may not be written
  /// and `writable` asks for it. Needs the GIL. Libraries that give C functions for it (DLPack's
  /// __dlpack_c_exchange_api__, as PyTorch does) are asked by them: __dlpack__ takes them 15 us.
  [[nodiscard]] bool read(nanobind::handle object, bool writable) noexcept;

 private:
  bool take(const nanobind::dlpack::dltensor& tensor) noexcept;
  template <typename Imported>
  bool import(nanobind::handle object) noexcept;

  nanobind::object owner_;
  nanobind::ndarray<nanobind::ro> imported_;
};

struct InputArray : Array {};
struct OutputArray : Array {};

}  // namespace terrace::python

namespace nanobind::detail {

template <>
struct type_caster<terrace::python::InputArray> {
  NB_TYPE_CASTER(terrace::python::InputArray, const_name("typing.Any"))
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    return value.read(source, false);
  }
};

template <>
struct type_caster<terrace::python::OutputArray> {
  NB_TYPE_CASTER(terrace::python::OutputArray, const_name("typing.Any"))
  bool from_python(handle source, std::uint8_t /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    return value.read(source, true);
  }
};

}  // namespace nanobind::detail
