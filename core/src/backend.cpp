#include "terrace/core/backend.hpp"

#include <bit>

namespace terrace {

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    reset();
    owner_ = std::exchange(other.owner_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    request_ = std::exchange(other.request_, {.bytes = 0});
  }
  return *this;
}

void Buffer::reset() noexcept {
  if (data_ == nullptr) return;
  owner_->do_release(data_, request_);
  data_ = nullptr;
  request_.bytes = 0;
}

Result<Buffer> Backend::allocate(const AllocationRequest& request) {
  if (request.bytes == 0 || !std::has_single_bit(request.alignment)) {
    return fail(Errc::invalid_argument, "cannot allocate {} bytes aligned to {}", request.bytes,
                request.alignment);
  }
  if (request.tier != Tier::device && request.tier != Tier::host) {
    return fail(Errc::invalid_argument, "backend {} has no tier '{}'", name(),
                to_string(request.tier));
  }
  const Result<std::byte*> data = do_allocate(request);
  if (data) return Buffer(*this, *data, request);
  Error error = data.error();
  if (error.code == Errc::out_of_memory) error.lacks = request.tier;
  return tl::unexpected(error);
}

}  // namespace terrace
