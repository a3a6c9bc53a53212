// Access to rows on the host: code that reads pages there, or enqueues work that reads them, first
// makes a HostRows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace {

class LayerRows;

/// Pages of one layer that stay on the host as long as this lives. Once work that reads them is
/// enqueued, and the layer's tickets say so, this may go: pages leave only while a layer is at
/// rest. Layer::host_rows() makes it, and has the pages there.
///
/// Threads  as the layer's rows
class HostRows {
 public:
  HostRows() = default;
  HostRows(LayerRows& rows, std::span<const std::uint32_t> blocks);
  HostRows(HostRows&& other) noexcept;
  HostRows& operator=(HostRows&& other) noexcept;
  ~HostRows() { let_go(); }

  /// The memory of a block that is kept, [kv_heads, block_tokens] rows.
  [[nodiscard]] std::byte* page(std::size_t block) const noexcept;
  /// The layer's pages as ops read them; no table of a default value. Blocks that are not kept may
  /// have none.
  [[nodiscard]] BlockTable table() const noexcept;
  /// Blocks that are kept; none where no page can leave.
  [[nodiscard]] std::span<const std::uint32_t> blocks() const noexcept { return kept_; }

 private:
  void let_go() noexcept;

  LayerRows* rows_ = nullptr;
  std::vector<std::uint32_t> kept_;
};

}  // namespace terrace
