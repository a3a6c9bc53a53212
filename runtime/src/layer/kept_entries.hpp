// The entries that a layer keeps of tokens that have left its window. The host's are the truth;
// the device has a copy, which attention reads.
#pragma once

#include <span>
#include <vector>

#include "entry_memory.hpp"
#include "terrace/core/retention.hpp"

namespace terrace {

/// The tokens that the entries of a KV head stand for, by rising position.
struct EntryList {
  std::vector<std::uint32_t> positions;  ///< of the last token of each
  std::vector<std::uint32_t> degrees;
  std::vector<std::uint8_t> gifted;  ///< whether its value has more in it than its tokens' values
  [[nodiscard]] std::size_t size() const noexcept { return positions.size(); }
  /// Whether an entry's row is that of a token.
  [[nodiscard]] bool is_token(std::size_t entry) const noexcept {
    return degrees[entry] == 1 && gifted[entry] == 0;
  }
};

/// The entries of all KV heads, on the host.
class HostEntries {
 public:
  /// Allocates memory for this layout and removes all entries. Errors: out_of_memory.
  Status reserve(Backend& backend, const EntryLayout& layout);

  std::vector<EntryList> heads;  ///< [kv_heads]; empty = nothing was decided yet

  [[nodiscard]] const EntryMemory& memory() const noexcept { return memory_; }
  /// Adds to `rows` those of a KV head's entries.
  void list_rows(std::size_t head, std::vector<const std::byte*>& rows) const;
  /// Writes what attention reads beside the rows; these will lie in `device`.
  void describe_for(const EntryMemory& device) const;

 private:
  EntryMemory memory_;
};

/// Threads  one at a time; next() may be written elsewhere until take_next()
class KeptEntries {
 public:
  [[nodiscard]] const HostEntries& now() const noexcept { return now_; }
  /// The entries that take the place of those now.
  [[nodiscard]] HostEntries& next() noexcept { return next_; }
  /// The entries now are those of next(), and the device's copy is stale.
  void take_next() noexcept;

  /// Has the device's copy whole: lists what is to be copied. Errors: out_of_memory.
  Status refresh_device(Backend& backend, std::vector<CopyExtent>& extents);
  /// The device's copy has to be made again.
  void mark_stale() noexcept { stale_ = true; }
  void give_up_device_memory() noexcept {
    device_.reset();
    mark_stale();
  }

  /// As attention reads them; null pointers where there are none.
  [[nodiscard]] PseudoEntries view() const noexcept;
  /// As selections leave them out; the entries stand for one token each.
  [[nodiscard]] HeldPositions held() const noexcept;
  /// Entries of all KV heads.
  [[nodiscard]] std::size_t size() const noexcept;

  /// The row of the token at `position`; null where no entry has it.
  [[nodiscard]] const std::byte* row_of(std::size_t head, std::size_t position) const noexcept;

  /// Copies another layer's, of the host. Errors: out_of_memory.
  Status copy_from(const KeptEntries& other, Backend& backend);
  void clear() noexcept;

 private:
  HostEntries now_;
  HostEntries next_;
  EntryMemory device_;
  bool stale_ = true;
};

}  // namespace terrace
