// The places of the signs of a page's tokens: see SignShape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/group_place.hpp"

namespace terrace::kernels::host {

/// A page of one KV head.
class SignPlace {
 public:
  SignPlace(const KvShape& shape, const SignShape& signs, const IndexView& index, std::size_t head,
            std::size_t page) noexcept
      : groups_(shape, signs.groups, index, head, page) {
    const std::size_t pages = index.chunk_tokens / signs.groups.page_tokens;
    const std::size_t token = page % pages * signs.groups.page_tokens;
    std::byte* const chunk = index.chunks[page / pages];
    factors_ =
        reinterpret_cast<std::uint16_t*>(chunk + signs.factors_at(index.chunk_tokens, head)) +
        token;
    signs_ =
        reinterpret_cast<std::uint8_t*>(chunk + signs.signs_at(shape, index.chunk_tokens, head)) +
        token / 2 * SignShape::quads(shape);
  }

  [[nodiscard]] const GroupPlace& groups() const noexcept { return groups_; }
  [[nodiscard]] std::uint16_t* factors() const noexcept { return factors_; }  ///< [page_tokens]
  [[nodiscard]] std::uint8_t* signs() const noexcept { return signs_; }  ///< [quads, page_tokens/2]

 private:
  GroupPlace groups_;
  std::uint16_t* factors_ = nullptr;
  std::uint8_t* signs_ = nullptr;
};

}  // namespace terrace::kernels::host
