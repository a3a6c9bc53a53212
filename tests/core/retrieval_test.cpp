// Building an index, by any policy.
#include "terrace/core/retrieval.hpp"

#include <gmock/gmock.h>

#include <new>

#include "runtime/own_policy.hpp"

namespace terrace {
namespace {

class Greedy final : public testing::OwnPolicy {
 public:
  Greedy() : OwnPolicy({.name = "greedy"}) {}

  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 3;
  }
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const override {
    if (part == 1) throw std::bad_alloc();
    return OwnPolicy::build_part(request, part);
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.record();
  }
};

TEST(RetrievalPolicy, SaysThatMemoryIsLackingWhereAPartThrows) {
  const Greedy policy;
  Serial serial;
  const auto built = policy.build({}, serial);
  ASSERT_FALSE(built.has_value());
  EXPECT_EQ(built.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(built.error().message()), ::testing::HasSubstr("policy greedy"));
}

}  // namespace
}  // namespace terrace
