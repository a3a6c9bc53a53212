// A line of Mooncake's JSONL, and which sizes of blocks fit such lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tuning {

struct MooncakeRequest {
  std::uint64_t input_length = 0;               ///< in tokens, above zero
  std::vector<std::uint64_t> hash_ids;          ///< at least one
  std::optional<std::uint64_t> timestamp = {};  ///< in milliseconds

  /// Reads a line and ignores other fields. Returns the fault of the line; empty if it has no
  /// fault. Memory: that of the ids, for lines of any length.
  std::string read(std::string_view line);
};

/// Finds out which size of blocks all requests fit that were taken.
class BlockSizes {
 public:
  void take(const MooncakeRequest& request);

  /// The power of two that fits, or otherwise the smallest size; nothing if no size fits.
  [[nodiscard]] std::optional<std::size_t> fitting() const noexcept;

 private:
  std::uint64_t low_ = 1;
  std::uint64_t high_ = std::uint64_t{1} << 16;  ///< as kv.block_tokens has it
};

}  // namespace terrace::tuning
