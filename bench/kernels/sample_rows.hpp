// Rows of made-up keys and values in host memory, in one stretch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"
#include "terrace/core/result.hpp"
#include "terrace/offload/host_memory.hpp"

namespace terrace::bench {

/// One KV head's rows on huge pages where there are any: block after block, as pools lay them.
class SampleRows {
 public:
  /// `shape` has one KV head; elements are uniform in [-0.5, 0.5).
  static Result<std::shared_ptr<SampleRows>> create(const KvShape& shape, std::size_t tokens,
                                                    std::uint64_t seed);

  [[nodiscard]] BlockTable table() const noexcept { return {blocks_.data(), block_tokens}; }
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return {data_, bytes_}; }
  [[nodiscard]] std::byte* row(std::size_t position) const noexcept {
    return data_ + position * row_bytes_;
  }

  static constexpr std::size_t block_tokens = 32;

 private:
  std::unique_ptr<offload::HostMemory> pool_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t row_bytes_ = 0;
  std::vector<std::byte*> blocks_;
};

/// Returns the chunks of an index that lie one after the other, each of so many bytes.
std::vector<std::byte*> cut_chunks(std::span<std::byte> memory, std::size_t bytes);

/// Errors: corrupt where a selection, ascending, has not as many rows as the reference's, or more
/// than `others` that are not its.
Status check_selected(std::span<const std::uint32_t> ids, std::span<const std::uint32_t> expected,
                      std::size_t others);

/// Returns the numbers 0 .. count - 1 in an order drawn from `seed`.
std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed);

/// Returns standard normal numbers.
std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed);

}  // namespace terrace::bench
