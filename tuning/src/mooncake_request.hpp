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
  std::uint64_t input_length = 0;       ///< in tokens, above zero
  std::vector<std::uint64_t> hash_ids;  ///< at least one

  /// Reads a line; what other fields say counts for nothing. Returns what is wrong with the line;
  /// empty where nothing is. Memory: that of the ids, whatever else is in the line.
  std::string read(std::string_view line);
};

/// Finds out which size of blocks all requests fit that were taken.
class BlockSizes {
 public:
  void take(const MooncakeRequest& request);

  /// The power of two that fits, or else the smallest size; nothing where none fits.
  [[nodiscard]] std::optional<std::size_t> fitting() const noexcept;

 private:
  std::uint64_t low_ = 1;
  std::uint64_t high_ = std::uint64_t{1} << 16;  ///< as kv.block_tokens has it
};

}  // namespace terrace::tuning
