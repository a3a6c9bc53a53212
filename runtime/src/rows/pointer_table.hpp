// A table of pointers that ops read (BlockTable, IndexView::chunks): written on the host, and for
// device-side ops copied to device memory in queue order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "terrace/core/backend.hpp"

namespace terrace {

/// Threads  one at a time. set() takes effect for ops enqueued after the next flush(); set() of an
/// entry that an enqueued op reads needs that op to be done, as does growing where the op runs on
/// the device.
class PointerTable {
 public:
  /// Which tier's ops read the table. On `host` there is one copy and no flush.
  explicit PointerTable(Tier tier) noexcept : tier_(tier) {}

  /// Bytes that a tier's copy takes once the table has grown to `count` entries.
  [[nodiscard]] static constexpr std::size_t bytes_for(std::size_t count) noexcept {
    return room_for(count) * sizeof(std::byte*);
  }

  /// Makes it at least `count` entries long; new ones are null. Where it has to move, the host's
  /// copy stays readable where it was, as it was. Errors: out_of_memory; nothing changed.
  [[nodiscard]] Status reserve(Backend& backend, std::size_t count);

  /// Frees copies that the table has moved away from. No work may read them any more.
  void forget_old_copies() noexcept { old_.clear(); }

  void set(std::size_t i, std::byte* pointer);
  [[nodiscard]] std::byte* operator[](std::size_t i) const noexcept {
    return i < size_ ? host_.as<std::byte*>()[i] : nullptr;
  }

  /// Whether entries were set since the last flush: what ops read is not current.
  [[nodiscard]] bool changed() const noexcept { return !changed_.empty(); }

  /// Enqueues the copying of all entries set since the last flush; no ticket where there are none.
  [[nodiscard]] Result<Ticket> flush(Queue& queue);

  /// Takes every entry as set since the last flush: what a failed queue was to copy may be missing.
  void touch_all();

  /// Returns the host's copy, current at once: for work whose arguments are read on the host.
  [[nodiscard]] std::byte* const* host_data() const noexcept { return host_.as<std::byte*>(); }

  [[nodiscard]] std::byte* const* data() const noexcept {
    return (tier_ == Tier::host ? host_ : device_).as<std::byte*>();
  }

  /// Drops all memory.
  void reset() noexcept;

 private:
  /// Half as much again, so that a sequence that grows token by token seldom moves it.
  [[nodiscard]] static constexpr std::size_t room_for(std::size_t count) noexcept {
    return std::max<std::size_t>(count + count / 2, 64);
  }
  Status grow(Backend& backend, std::size_t count);

  Tier tier_;
  Buffer host_;
  Buffer device_;
  std::vector<Buffer> old_;  ///< copies of the host's that may still be read
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  std::vector<std::uint32_t> changed_;
  std::vector<CopyExtent> extents_;  ///< of a flush, kept so that the next one allocates nothing
};

}  // namespace terrace
