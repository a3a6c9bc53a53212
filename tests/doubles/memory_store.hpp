// A store in host memory: the first one there is, and what the others are tested against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "terrace/core/store.hpp"

namespace terrace::doubles {

struct MemoryStoreOptions {
  std::size_t capacity_bytes = SIZE_MAX;  ///< of pages held
};

/// Batches are carried out within submit: a ticket is done when it is handed out. Each part of a
/// page, of 64 bytes or more, has a checksum (XXH3), looked at whenever it is read.
class MemoryStore final : public Store {
 public:
  explicit MemoryStore(const MemoryStoreOptions& options = {}) : options_(options) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "memory"; }
  void cancel(const StoreTicket& /*ticket*/) noexcept override {}

  [[nodiscard]] StoreUsage usage() const override;

  /// Returns how many batches there were that read pages.
  [[nodiscard]] std::uint64_t read_batches() const;

  /// Flips one bit of a stored page, for tests of what reads it. Returns whether it has the byte.
  bool damage(PageKey key, std::size_t byte = 0);

 private:
  struct Page {
    std::vector<std::byte> bytes;
    std::vector<std::uint64_t> checksums;  ///< by part
  };
  /// Whether the parts that some bytes lie in are as they were put.
  [[nodiscard]] static bool is_whole(const Page& page, std::size_t begin, std::size_t bytes);
  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;
  Status carry_out(PageRequest& request);
  Status find(PageRequest& request) const;
  Status get(const PageRequest& request) const;
  Status put(const PageRequest& request);
  Status erase(const PageRequest& request);

  MemoryStoreOptions options_;
  mutable std::mutex mutex_;
  std::unordered_map<PageKey, Page, PageKeyHash> pages_;
  std::size_t bytes_in_use_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t read_batches_ = 0;
};

}  // namespace terrace::doubles
