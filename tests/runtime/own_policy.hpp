// A policy of a test's own: an index that says nothing, for tests that are about something else.
#pragma once

#include <utility>

#include "terrace/core/retrieval.hpp"

namespace terrace::testing {

/// All but select(); building and extending succeed at once.
class OwnPolicy : public RetrievalPolicy {
 public:
  explicit OwnPolicy(RetrievalTraits traits) : traits_(std::move(traits)) {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override { return traits_; }
  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& /*shape*/) const override {
    return IndexLayout{.chunk_tokens = 64, .chunk_bytes = 64};
  }
  [[nodiscard]] std::size_t select_scratch_floats(
      const KvShape& /*shape*/, std::size_t /*candidates*/) const noexcept override {
    return 0;
  }
  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 1;
  }
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& /*request*/,
                                               std::size_t /*part*/) const override {
    return BuildReport{};
  }

 private:
  RetrievalTraits traits_;
};

}  // namespace terrace::testing
