// Directories in memory of their own, for tests.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

#include "terrace/tiers/directory.hpp"

namespace terrace::tiers {

/// Memory as a directory needs it.
class AlignedBlock {
 public:
  explicit AlignedBlock(std::size_t bytes)
      : bytes_(static_cast<std::byte*>(::operator new(bytes, alignment))), size_(bytes) {}
  /// A copy of a block, at another address.
  explicit AlignedBlock(std::span<const std::byte> block) : AlignedBlock(block.size()) {
    std::memcpy(bytes_.get(), block.data(), block.size());
  }

  [[nodiscard]] std::span<std::byte> span() const noexcept { return {bytes_.get(), size_}; }

 private:
  static constexpr std::align_val_t alignment{64};
  struct Delete {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, alignment); }
  };

  std::unique_ptr<std::byte, Delete> bytes_;
  std::size_t size_;
};

constexpr Digest root_numbered(unsigned number) { return {std::byte{1}, std::byte(number)}; }
inline constexpr Digest some_root = root_numbered(0);

constexpr TimePoint at_seconds(std::int64_t seconds) {
  return TimePoint{std::chrono::seconds(seconds)};
}

inline std::vector<ChunkKey> some_keys(std::size_t count, std::uint64_t first = 1) {
  std::vector<ChunkKey> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back({.high = first + i, .low = 17});
  return keys;
}

/// A directory with the steps that most tests take; what they must not fail at ends the test.
struct MadeDirectory {
  explicit MadeDirectory(const DirectoryOptions& options)
      : block(Directory::block_bytes(options).value()),
        directory(Directory::create(block.span(), options).value()) {}

  FoundRun find(std::span<const ChunkKey> keys, TimePoint now = {}, TenantId tenant = {}) {
    return directory.find({.root = some_root, .tenant = tenant, .keys = keys, .now = now}).value();
  }
  Result<Reserved> reserve(const ChunkKey& key, Tier tier = Tier::host, std::uint64_t bytes = 100,
                           TenantId tenant = {}) {
    return directory.reserve(
        {.root = some_root, .key = key, .tier = tier, .tenant = tenant, .bytes = bytes});
  }
  CopyHandle store(const ChunkKey& key, Tier tier = Tier::host, std::uint64_t bytes = 100,
                   TenantId tenant = {}, TimePoint now = {}) {
    const CopyHandle handle = reserve(key, tier, bytes, tenant).value().handle;
    must_be_done(directory.publish(handle, {.place = key.high, .checksum = 5, .now = now}));
    return handle;
  }
  LeaseHandle lease(const ChunkKey& key, TimePoint now, TimePoint until) {
    return directory.lease({.key = key, .now = now, .until = until}).value().value().handle;
  }
  std::vector<FreedCopy> evict(std::uint64_t bytes, Tier tier = Tier::host,
                               std::optional<TenantId> tenant = {}, TimePoint now = {}) {
    std::vector<FreedCopy> freed;
    std::uint64_t sum = 0;
    const auto note = [&](const FreedCopy& copy) {
      freed.push_back(copy);
      sum += copy.bytes;
    };
    const EvictRequest request{.tier = tier, .bytes = bytes, .tenant = tenant, .now = now};
    must_be_done(directory.evict(request, note) == sum ? Answer::done : Answer::stale);
    return freed;
  }
  std::vector<FreedCopy> collect(TimePoint now = {}) {
    std::vector<FreedCopy> freed;
    directory.collect(now, [&](const FreedCopy& copy) { freed.push_back(copy); });
    return freed;
  }

  AlignedBlock block;
  Directory directory;

 private:
  static void must_be_done(Answer answer) {
    if (answer != Answer::done) throw std::logic_error("a step of a test was not done");
  }
};

/// Returns the keys of freed copies, in their order.
inline std::vector<ChunkKey> keys_of(const std::vector<FreedCopy>& freed) {
  std::vector<ChunkKey> keys;
  for (const FreedCopy& copy : freed) keys.push_back(copy.key);
  return keys;
}

}  // namespace terrace::tiers
