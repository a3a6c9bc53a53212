#include "device_ops/device.hpp"

#include <algorithm>

#include "terrace/core/drain_to_end.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t staging_bytes = std::size_t{16} << 20;

}  // namespace

Result<std::shared_ptr<MeasuredDevice>> MeasuredDevice::create(const MakeBackend& make,
                                                               Duration patience) {
  TERRACE_ASSIGN(auto backend, make());
  TERRACE_ASSIGN(auto queue, backend->make_queue({.name = "compute", .high_priority = true}));
  std::shared_ptr<MeasuredDevice> device(
      new MeasuredDevice(std::move(backend), std::move(queue), patience));
  TERRACE_ASSIGN(device->staging_,
                 device->backend_->allocate(
                     {.bytes = staging_bytes, .tier = Tier::host, .purpose = Purpose::model}));
  return device;
}

MeasuredDevice::~MeasuredDevice() { drain_to_end(*queue_, patience_); }

Result<std::byte*> MeasuredDevice::allocate(std::size_t bytes, Tier tier) {
  TERRACE_ASSIGN(Buffer buffer,
                 backend_->allocate({.bytes = bytes, .tier = tier, .purpose = Purpose::model}));
  return buffers_.emplace_back(std::move(buffer)).data();
}

Status MeasuredDevice::clear(std::byte* target, std::size_t bytes) {
  std::fill_n(staging_.data(), std::min(staging_bytes, bytes), std::byte{});
  for (std::size_t at = 0; at < bytes; at += staging_bytes) {
    TERRACE_TRY(copy(target + at, staging_.data(), std::min(staging_bytes, bytes - at)));
  }
  return {};
}

Status MeasuredDevice::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  const CopyExtent extent{target, source, bytes};
  TERRACE_ASSIGN(const Ticket copied, queue_->copy(Phase::model, {&extent, 1}));
  return wait(copied);
}

Status MeasuredDevice::write(std::byte* target, std::span<const std::byte> host) {
  for (std::size_t at = 0; at < host.size(); at += staging_bytes) {
    const auto part = host.subspan(at, std::min(staging_bytes, host.size() - at));
    std::ranges::copy(part, staging_.data());
    TERRACE_TRY(copy(target + at, staging_.data(), part.size()));
  }
  return {};
}

Status MeasuredDevice::read(const std::byte* source, std::span<std::byte> host) {
  for (std::size_t at = 0; at < host.size(); at += staging_bytes) {
    const auto part = host.subspan(at, std::min(staging_bytes, host.size() - at));
    TERRACE_TRY(copy(staging_.data(), source + at, part.size()));
    std::copy_n(staging_.data(), part.size(), part.data());
  }
  return {};
}

}  // namespace terrace::bench
