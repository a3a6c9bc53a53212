// A hash table of chunks: buckets, as many as chunks at most, and chains through the records.
#pragma once

#include <optional>

#include "record_pool.hpp"

namespace terrace::tiers {

class ChunkTable {
 public:
  using Pool = RecordPool<ChunkRecord, &ChunkRecord::next>;

  ChunkTable(Pool pool, std::span<RecordNumber> buckets, std::uint64_t seed) noexcept
      : pool_(pool), buckets_(buckets), seed_(seed) {}

  [[nodiscard]] ChunkRecord& operator[](RecordNumber number) const noexcept {
    return pool_[number];
  }
  [[nodiscard]] const Pool& pool() const noexcept { return pool_; }

  /// Returns no_record where there is no such chunk.
  [[nodiscard]] RecordNumber find(const ChunkKey& key) const noexcept;

  /// Adds a chunk that is not there, of zeros but for its key; no_record where there is no room.
  [[nodiscard]] RecordNumber insert(const ChunkKey& key) noexcept;

  void erase(RecordNumber chunk) noexcept;

  /// Whether chains have all chunks that are in use, each in its bucket.
  [[nodiscard]] bool is_whole() const noexcept;

 private:
  [[nodiscard]] RecordNumber& bucket_of(const ChunkKey& key) const noexcept;

  Pool pool_;
  std::span<RecordNumber> buckets_;
  std::uint64_t seed_;
};

}  // namespace terrace::tiers
