// The common part of the policies that select pages of consecutive tokens, each by one vector.
#pragma once

#include <vector>

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

inline constexpr std::size_t page_chunk_tokens = 256;

/// A policy fills in how a page's vector is made; pages that grow are made anew.
class PageIndex : public RetrievalPolicy {
 public:
  [[nodiscard]] const RetrievalTraits& traits() const noexcept final { return traits_; }
  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override;
  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept final;
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept final {
    return request.shape.kv_heads;
  }
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t head) const override;
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const final;

 protected:
  PageIndex(const RetrievalTraits& traits, const PageShape& pages, GroupReduction reduction)
      : traits_(traits), pages_(pages), reduction_(reduction) {}

  /// Keys of a page, [tokens, head_dim], of KV head `head`.
  struct PageKeys {
    std::size_t head = 0;
    std::size_t tokens = 0;
    const float* keys = nullptr;
  };
  /// Writes a page's vector, [pages.dims].
  virtual void describe(const BuildRequest& request, const PageKeys& page, float* vector) const = 0;

 private:
  RetrievalTraits traits_;
  PageShape pages_;
  GroupReduction reduction_;
};

/// Errors: invalid_argument unless the pages fill a chunk.
Status check_page_tokens(std::string_view key, std::size_t tokens);

}  // namespace terrace::policies
