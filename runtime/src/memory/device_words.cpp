#include "device_words.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace terrace {
namespace {

Result<Buffer> zeros_on_host(Backend& backend, std::size_t bytes) {
  TERRACE_ASSIGN(Buffer zeros, backend.allocate({.bytes = bytes, .tier = Tier::host}));
  std::memset(zeros.data(), 0, bytes);
  return zeros;
}

/// Enqueues zeros for all of `target`, from fewer zeros.
Result<Ticket> zero(Queue& queue, const Buffer& target, const Buffer& zeros) {
  std::vector<CopyExtent> extents;
  for (std::size_t done = 0; done < target.bytes(); done += zeros.bytes()) {
    const std::size_t bytes = std::min(zeros.bytes(), target.bytes() - done);
    extents.push_back({target.data() + done, zeros.data(), bytes});
  }
  return queue.copy(Phase::update, extents);
}

}  // namespace

Status DeviceWords::grow(Backend& backend, Queue& queue, std::size_t count, Duration deadline) {
  const std::size_t bytes = count * sizeof(std::uint32_t);
  TERRACE_ASSIGN(Buffer words, backend.allocate({.bytes = bytes, .purpose = Purpose::index}));
  TERRACE_ASSIGN(Buffer zeros, zeros_on_host(backend, zero_bytes_for(bytes)));
  const auto copy = [&]() -> Status {
    TERRACE_ASSIGN(Ticket copied, zero(queue, words, zeros));
    if (words_) {
      const CopyExtent known{words.data(), words_.data(), words_.bytes()};
      TERRACE_ASSIGN(copied, queue.copy(Phase::update, {&known, 1}));
    }
    return wait(copied, deadline);
  };
  if (const Status copied = copy(); !copied) {
    abandoned_.push_back(std::move(words));
    abandoned_.push_back(std::move(zeros));
    return copied;
  }
  words_ = std::move(words);
  return {};
}

Status DeviceWords::prepare_zeros(Backend& backend) {
  if (zeros_) return {};
  TERRACE_ASSIGN(zeros_, zeros_on_host(backend, zero_bytes_for(words_.bytes())));
  return {};
}

Result<Ticket> DeviceWords::clear(Queue& queue) { return zero(queue, words_, zeros_); }

void DeviceWords::reset() noexcept {
  words_.reset();
  zeros_.reset();
}

}  // namespace terrace
