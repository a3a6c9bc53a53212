// A policy that wraps another one, and whose index has more data after the wrapped policy's.
#pragma once

#include <memory>

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

/// Whether a policy selects some of the rows, and by an index that could have missed others.
[[nodiscard]] inline bool selects_by_index(const RetrievalTraits& traits) noexcept {
  return traits.selects && !traits.keeps_everything && traits.name != "oracle";
}

/// Builds the wrapped policy's index, and, head by head, the data that follow it in its chunks.
class WrappingPolicy : public RetrievalPolicy {
 public:
  [[nodiscard]] const RetrievalTraits& traits() const noexcept final { return traits_; }

  [[nodiscard]] GroupRests rests(const RestsRequest& request) const override {
    return base_->rests(request);
  }

  /// A part is a KV head where the other policy's parts are those of heads, else all.
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept final;
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const final;

 protected:
  /// The traits are the other policy's: what differs, a constructor sets.
  explicit WrappingPolicy(std::unique_ptr<RetrievalPolicy> base)
      : traits_(base->traits()), base_(std::move(base)) {}

  [[nodiscard]] const RetrievalPolicy& base() const noexcept { return *base_; }

  /// Writes the data of a KV head that follow an index of that layout, which is already built.
  /// Errors: those of reading rows.
  [[nodiscard]] virtual Status write_behind(const IndexLayout& layout, const BuildRequest& request,
                                            std::size_t head) const = 0;

  [[nodiscard]] Result<bool> do_cut(const BuildRequest& request) const final {
    return base_->cut(request);
  }

  RetrievalTraits traits_;

 private:
  std::unique_ptr<RetrievalPolicy> base_;
};

}  // namespace terrace::policies
