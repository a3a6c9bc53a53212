#include "device_words.hpp"

#include <cstring>
#include <utility>

namespace terrace {
namespace {

Result<Buffer> zeros_on_host(Backend& backend, std::size_t bytes) {
  TERRACE_ASSIGN(Buffer zeros, backend.allocate({.bytes = bytes, .tier = Tier::host}));
  std::memset(zeros.data(), 0, bytes);
  return zeros;
}

}  // namespace

Status DeviceWords::grow(Backend& backend, Queue& queue, std::size_t count, Duration deadline) {
  const std::size_t bytes = count * sizeof(std::uint32_t);
  TERRACE_ASSIGN(Buffer words, backend.allocate({.bytes = bytes, .purpose = Purpose::index}));
  TERRACE_ASSIGN(Buffer zeros, zeros_on_host(backend, bytes));
  const auto copy = [&]() -> Status {
    const CopyExtent zero{words.data(), zeros.data(), bytes};
    TERRACE_ASSIGN(Ticket copied, queue.copy(Phase::update, {&zero, 1}));
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

Result<Ticket> DeviceWords::clear(Backend& backend, Queue& queue) {
  zeros_.reset();
  TERRACE_ASSIGN(zeros_, zeros_on_host(backend, words_.bytes()));
  const CopyExtent zero{words_.data(), zeros_.data(), words_.bytes()};
  return queue.copy(Phase::update, {&zero, 1});
}

void DeviceWords::reset() noexcept {
  words_.reset();
  zeros_.reset();
}

}  // namespace terrace
