// Rows of a measured layer, on the host and on a device, and which of them are selected.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device_ops/measured_op.hpp"
#include "kernels/sample_rows.hpp"

namespace terrace::bench {

/// [tokens / block_tokens, kv_heads, block_tokens] rows, as pools lay them.
class LayerSample {
 public:
  static Result<LayerSample> create(std::size_t tokens);

  [[nodiscard]] std::size_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::span<const std::byte> memory() const noexcept { return rows_->memory(); }
  /// Returns where a row lies in memory, from its beginning.
  [[nodiscard]] static std::size_t offset_of(std::size_t head, std::size_t position) noexcept;
  /// Returns the blocks of the rows in memory that begins at `base`.
  [[nodiscard]] std::vector<std::byte*> blocks(std::byte* base) const;
  [[nodiscard]] std::vector<std::byte*> blocks_on_host() const {
    return blocks(rows_->memory().data());
  }

  /// Positions of a tenth of the tokens, evenly spread: [kv_heads, selected].
  [[nodiscard]] std::span<const std::uint32_t> ids() const noexcept { return ids_; }
  [[nodiscard]] std::size_t selected() const noexcept { return selected_; }
  /// [kv_heads]
  [[nodiscard]] std::span<const std::uint32_t> counts() const noexcept { return counts_; }
  /// Returns the selected rows in memory that begins at `base`: [kv_heads, selected].
  [[nodiscard]] std::vector<std::byte*> selected_rows(std::byte* base) const;

  static constexpr std::size_t block_tokens = SampleRows::block_tokens;

 private:
  LayerSample(std::shared_ptr<SampleRows> rows, std::size_t tokens);

  std::shared_ptr<SampleRows> rows_;
  std::size_t tokens_;
  std::size_t selected_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> counts_;
};

/// Returns queries of the layer: [query_heads, head_dim].
[[nodiscard]] std::vector<float> layer_queries();

}  // namespace terrace::bench
