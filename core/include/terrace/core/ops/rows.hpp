// Rows: where they lie, and the ops that store, find and fetch them. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/shape.hpp"

namespace terrace {

/// Positions [begin, end).
struct TokenRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
  [[nodiscard]] constexpr bool empty() const noexcept { return end == begin; }
  [[nodiscard]] constexpr bool contains(std::size_t position) const noexcept {
    return position >= begin && position < end;
  }
  bool operator==(const TokenRange&) const = default;
};

/// The places of a layer's blocks: position p, KV head h is row h * block_tokens + p % block_tokens
/// of block p / block_tokens. A null entry means that the block is absent.
struct BlockTable {
  std::byte* const* blocks = nullptr;  ///< [block_count]
  std::size_t block_tokens = 0;
};

/// Keys and values as an engine computes them: element (token, head, i) lies at
/// token * token_stride + head * head_stride + i * size of dtype, in bytes.
struct KvTensors {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  std::size_t token_stride = 0;
  std::size_t head_stride = 0;
};

/// Packs `tokens.size()` tokens of K and V into rows of blocks. On a table of host blocks this is a
/// transfer and its bytes are counted. No block written to may lie within the source, in the gaps
/// of its strides neither.
struct StoreRows {
  KvTensors source;  ///< token 0 of it goes to position tokens.begin
  TokenRange tokens;
  BlockTable target;  ///< the table itself is host memory; its blocks any tier
  KvShape shape;
  bool crosses_link = false;  ///< target blocks are host memory
};

/// Which lists a selection has under grouped-query attention.
enum class ListScope : std::uint8_t { kv_head, query_head };

/// Returns how many lists there are, and how many of them a KV head has.
constexpr std::size_t list_count(const KvShape& shape, ListScope scope) noexcept {
  return scope == ListScope::query_head ? shape.query_heads : shape.kv_heads;
}
constexpr std::size_t lists_per_kv_head(const KvShape& shape, ListScope scope) noexcept {
  return list_count(shape, scope) / shape.kv_heads;
}

/// A row to fetch: the op's own words between resolve_rows and fetch_rows.
struct MissedRow {
  std::uint32_t position = 0;
  std::uint32_t head = 0;
  std::byte* target = nullptr;
};

/// Rows in device memory without their block: those that a cache of clusters or of rows keeps. Row
/// number n lies in block n / block_rows.
struct CachedRows {
  std::uint32_t* numbers = nullptr;  ///< [positions, kv_heads]: 1 + number, 0 = not there; null =
                                     ///< no row is there
  std::byte* const* blocks = nullptr;
  std::size_t block_rows = 0;
};

/// A place for a row that resolve_rows has missed. All zeros at first.
struct RowSlot {
  std::uint32_t held = 0;   ///< 1 + position of its row, 0 = empty
  std::uint32_t found = 0;  ///< number of the call that wanted the row last
  std::uint32_t freed = 0;  ///< the op's own within a call
};

/// Slots that resolve_rows fills with the rows it misses, so that the next call finds them.
///
/// Slot s of KV head h is the cached row that position s of the head would be in the same blocks:
/// its number is slot_number(). A missed row takes the slot of its head whose row no call has found
/// for the longest time, in the order of the misses and of the slots. Ages from oldest_age on are
/// alike, and among slots of one age the lowest go. A row that the call has found stays; misses
/// beyond the other slots are staged. The caller zeroes all memory once, and `numbers` of the
/// cached rows with it; the op alone writes it afterwards.
struct RowSlots {
  static constexpr std::uint32_t oldest_age = 255;

  std::size_t count = 0;           ///< of each KV head; 0 = rows are not kept
  RowSlot* each = nullptr;         ///< that of cached row n is each[n - 1]
  std::uint32_t* calls = nullptr;  ///< [kv_heads]: so many there have been
};

/// Rows that a call of resolve_rows found in the slots of a KV head, gave slots, and took them
/// from.
struct RowSlotCounts {
  std::uint32_t found = 0;
  std::uint32_t admitted = 0;
  std::uint32_t evicted = 0;
};

/// Returns the number of the cached row that is slot `slot` of a KV head.
constexpr std::uint32_t slot_number(const KvShape& shape, const CachedRows& cached,
                                    std::uint32_t head, std::uint32_t slot) noexcept {
  const auto block_rows = static_cast<std::uint32_t>(cached.block_rows);
  const auto head_rows = block_rows / static_cast<std::uint32_t>(shape.kv_heads);
  return 1 + slot / head_rows * block_rows + head * head_rows + slot % head_rows;
}

/// Finds each selected row: in its device block or among the cached rows if it is there, else in a
/// slot or a staging row it is given. A row that several query heads of a group want is missed
/// once.
///
/// For that `seen` and `seen_epoch` are memory of the op's own between calls, which the caller
/// keeps, zeroes once, and never writes again: seen_epoch is how many misses all earlier calls had,
/// and the entry of a row is the number, counted from 1 over all calls, of its last miss. Therefore
/// entries greater than seen_epoch are of the running call, and nothing is cleared between calls.
/// When the numbers get near 2^32 the op zeroes both itself. A pair may serve one layer or all, but
/// one call at a time: each call of a batch has a pair of its own.
struct ResolveRows {
  KvShape shape;
  ListScope scope = ListScope::kv_head;
  const std::uint32_t* ids = nullptr;       ///< [lists, id_stride]
  const std::uint32_t* id_count = nullptr;  ///< [lists]
  std::size_t id_stride = 0;
  BlockTable resident;  ///< device blocks; null = on the host only
  CachedRows cached = {};
  RowSlots slots = {};                    ///< that the op fills; none: the caller fills `cached`
  RowSlotCounts* slot_counts = nullptr;   ///< out [kv_heads], where there are slots
  std::byte* staging = nullptr;           ///< [lists * id_stride] rows
  std::byte** rows = nullptr;             ///< out [lists, id_stride]
  MissedRow* missed = nullptr;            ///< out [lists * id_stride]
  std::uint32_t* missed_count = nullptr;  ///< out [1]
  std::uint32_t* seen = nullptr;  ///< query_head scope only: [kv_heads, positions], zeroed once,
  std::uint32_t* seen_epoch = nullptr;  ///< and [1], kept between calls
  std::size_t seen_stride = 0;
};

/// Copies missed rows from host blocks to their targets. A transfer; its bytes are counted.
struct FetchRows {
  KvShape shape;
  const MissedRow* missed = nullptr;
  const std::uint32_t* missed_count = nullptr;
  BlockTable source;  ///< host blocks; the table itself is pinned host memory
};

/// A row that becomes a cached one, or no longer is.
struct CachedRowChange {
  std::uint32_t position = 0;
  std::uint32_t head = 0;
  std::uint32_t number = 0;  ///< as CachedRows::numbers has it
  std::uint32_t staged = 0;  ///< 1 + the staging row that has it already; 0 = it is on the host
};

/// Copies rows from staging rows or host blocks to their places among cached rows and notes where
/// they are; those that leave are noted as gone. Rows that come from the host are a transfer; the
/// op counts its bytes.
struct CacheRows {
  KvShape shape;
  const CachedRowChange* changes = nullptr;  ///< host memory, [count]; a row is named once
  std::size_t count = 0;
  BlockTable source;  ///< host blocks; the table itself is pinned host memory
  const std::byte* staging = nullptr;
  CachedRows target;
};

}  // namespace terrace
