#include "array.hpp"

#include <algorithm>

namespace nb = nanobind;

namespace terrace::python {
namespace {

// The table of functions behind __dlpack_c_exchange_api__, as DLPack 1 lays it out.
struct ExchangeHeader {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  ExchangeHeader* older = nullptr;
};
struct ExchangeApi {
  ExchangeHeader header;
  void* make_tensor;
  void* give_tensor;
  void* take_tensor;
  int (*view)(void* object, nb::dlpack::dltensor* tensor);  ///< may be null; non-owning
  void* stream;
};

const ExchangeApi* find_api(PyTypeObject* type) noexcept {
  PyObject* const found =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__");
  if (found == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const auto object = nb::steal(found);
  if (!PyCapsule_IsValid(found, "dlpack_exchange_api")) return nullptr;
  auto* header = static_cast<ExchangeHeader*>(PyCapsule_GetPointer(found, "dlpack_exchange_api"));
  while (header != nullptr && header->major != 1) header = header->older;
  const auto* const api = reinterpret_cast<const ExchangeApi*>(header);
  return api == nullptr || api->view == nullptr ? nullptr : api;
}

/// Remembers the types that were seen last: an engine hands over the same over and over. Types are
/// kept, so that none takes the address of another. Guarded by the GIL.
const ExchangeApi* api_of(PyTypeObject* type) noexcept {
  struct Seen {
    PyTypeObject* type = nullptr;
    const ExchangeApi* api = nullptr;
  };
  static std::array<Seen, 4> seen;
  static std::size_t next = 0;
  const auto* const known =
      std::find_if(seen.begin(), seen.end(), [type](const Seen& one) { return one.type == type; });
  if (known != seen.end()) return known->api;
  Seen& place = seen.at(next);
  next = (next + 1) % seen.size();
  Py_XDECREF(reinterpret_cast<PyObject*>(place.type));
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  place = {type, find_api(type)};
  return place.api;
}

}  // namespace

std::size_t Array::numbers() const noexcept {
  std::size_t count = 1;
  for (std::size_t i = 0; i < dimensions; ++i) count *= static_cast<std::size_t>(shape[i]);
  return count;
}

bool Array::take(const nb::dlpack::dltensor& tensor) noexcept {
  if (tensor.ndim < 0 || static_cast<std::size_t>(tensor.ndim) > dimensions_max) return false;
  data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  dtype = tensor.dtype;
  device = tensor.device.device_type;
  dimensions = static_cast<std::size_t>(tensor.ndim);
  std::int64_t packed = 1;
  for (std::size_t i = dimensions; i-- > 0;) {
    shape[i] = tensor.shape[i];
    strides[i] = tensor.strides == nullptr ? packed : tensor.strides[i];
    packed *= shape[i];
  }
  return true;
}

template <typename Imported>
bool Array::import(nb::handle object) noexcept {
  nb::detail::make_caster<Imported> caster;
  if (!caster.from_python(object, 0, nullptr)) return false;
  const Imported& array = caster.value;
  imported_ = nb::ndarray<nb::ro>(array);
  return take({const_cast<void*>(static_cast<const void*>(array.data())),
               {array.device_type(), array.device_id()},
               static_cast<std::int32_t>(array.ndim()),
               array.dtype(),
               const_cast<std::int64_t*>(array.shape_ptr()),
               const_cast<std::int64_t*>(array.stride_ptr()),
               0});
}

bool Array::read(nb::handle object, bool writable) noexcept {
  owner_ = nb::borrow(object);
  if (const ExchangeApi* const api = api_of(Py_TYPE(object.ptr()))) {
    nb::dlpack::dltensor tensor;
    if (api->view(object.ptr(), &tensor) == 0) return take(tensor);
    PyErr_Clear();
    return false;
  }
  return writable ? import <nb::ndarray<>>(object) : import <nb::ndarray<nb::ro>>(object);
}

}  // namespace terrace::python
