// The part that policies without an index share: no memory, nothing to build, nothing to select.
#pragma once

#include "terrace/core/assert.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

class WithoutIndex : public RetrievalPolicy {
 public:
  explicit WithoutIndex(const RetrievalTraits& traits) : traits_(traits) {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept final { return traits_; }
  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& /*shape*/) const final {
    return IndexLayout{};
  }
  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& /*shape*/,
                                                  std::size_t /*candidates*/) const noexcept final {
    return 0;
  }
  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept final {
    return 0;
  }
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& /*request*/,
                                               std::size_t /*part*/) const final {
    return BuildReport{};
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& /*queue*/,
                                      const Ops& /*ops*/) const final {
    TERRACE_ASSERT(traits_.selects);  // a policy that selects nothing is not asked to
    return Ticket{};
  }

 private:
  RetrievalTraits traits_;
};

}  // namespace terrace::policies
