// Where the signs and the groups of a page's tokens lie: see SignShape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// A page of one KV head.
class SignPlace {
 public:
  SignPlace(const KvShape& shape, const SignShape& signs, const IndexView& index, std::size_t head,
            std::size_t page) noexcept {
    const GroupShape& groups = signs.groups;
    const std::size_t pages = index.chunk_tokens / groups.page_tokens;
    const std::size_t number = page % pages;
    const std::size_t token = number * groups.page_tokens;
    std::byte* const chunk = index.chunks[page / pages];
    means_ = chunk + groups.means_at(shape, index.chunk_tokens, head) +
             number * groups.groups * shape.row_bytes();
    labels_ =
        reinterpret_cast<std::uint8_t*>(chunk + groups.labels_at(shape, index.chunk_tokens, head)) +
        token;
    factors_ =
        reinterpret_cast<std::uint16_t*>(chunk + signs.factors_at(index.chunk_tokens, head)) +
        token;
    signs_ =
        reinterpret_cast<std::uint8_t*>(chunk + signs.signs_at(shape, index.chunk_tokens, head)) +
        token / 2 * SignShape::quads(shape);
  }

  [[nodiscard]] const std::byte* means() const noexcept { return means_; }    ///< rows of groups
  [[nodiscard]] std::uint8_t* labels() const noexcept { return labels_; }     ///< [page_tokens]
  [[nodiscard]] std::uint16_t* factors() const noexcept { return factors_; }  ///< [page_tokens]
  [[nodiscard]] std::uint8_t* signs() const noexcept { return signs_; }  ///< [quads, page_tokens/2]

 private:
  const std::byte* means_;
  std::uint8_t* labels_;
  std::uint16_t* factors_;
  std::uint8_t* signs_;
};

}  // namespace terrace::kernels::host
