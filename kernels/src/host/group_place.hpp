// The places of a page's groups: see GroupShape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// The groups of a page of one KV head.
class GroupPlace {
 public:
  GroupPlace(const KvShape& shape, const GroupShape& groups, const IndexView& index,
             std::size_t head, std::size_t page) noexcept {
    const std::size_t pages = index.chunk_tokens / groups.page_tokens;
    const std::size_t first = page % pages * groups.groups;
    std::byte* const chunk = index.chunks[page / pages];
    means_ = chunk + groups.means_at(shape, index.chunk_tokens, head) + first * shape.row_bytes();
    sizes_ =
        reinterpret_cast<std::uint16_t*>(chunk + groups.sizes_at(shape, index.chunk_tokens, head)) +
        first;
    labels_ =
        reinterpret_cast<std::uint8_t*>(chunk + groups.labels_at(shape, index.chunk_tokens, head)) +
        page % pages * groups.page_tokens;
  }

  [[nodiscard]] std::byte* means() const noexcept { return means_; }      ///< [groups, 2, head_dim]
  [[nodiscard]] std::uint16_t* sizes() const noexcept { return sizes_; }  ///< [groups]
  [[nodiscard]] std::uint8_t* labels() const noexcept { return labels_; }  ///< [page_tokens]

 private:
  std::byte* means_;
  std::uint16_t* sizes_;
  std::uint8_t* labels_;
};

}  // namespace terrace::kernels::host
