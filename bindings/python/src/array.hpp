// An array of another library (NumPy, PyTorch, any with DLPack or the buffer protocol), as an
// argument of this module's functions: memory that is not copied, and the object that owns it.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::python {

/// The parts of an array that are read. Strides count numbers.
struct Array {
  static constexpr std::size_t dimensions_max = 4;

  void* data = nullptr;
  nanobind::dlpack::dtype dtype;
  int device = 0;         ///< its kind
  int device_number = 0;  ///< among those of its kind
  std::size_t dimensions = 0;
  std::array<std::int64_t, dimensions_max> shape{};
  std::array<std::int64_t, dimensions_max> strides{};

  [[nodiscard]] std::size_t numbers() const noexcept;
  [[nodiscard]] std::size_t bytes() const noexcept { return numbers() * dtype.bits / 8; }

  /// Reads `object`, to write to it where `writable`. Returns why it cannot be read, as the part of
  /// a message after the array's name; empty: it was read. Needs the GIL. If the library offers C
  /// functions for this (DLPack's __dlpack_c_exchange_api__, as PyTorch does), they are used: its
  /// __dlpack__ takes 15 us.
  [[nodiscard]] std::string read(nanobind::handle object, bool writable);

 private:
  [[nodiscard]] std::string take(const nanobind::dlpack::dltensor& tensor);
  template <typename Imported>
  [[nodiscard]] bool import(nanobind::handle object, std::string& reason);

  nanobind::object owner_;
  nanobind::ndarray<nanobind::ro> imported_;
};

}  // namespace terrace::python
