// Building an index, of whatever policy.
#include "terrace/core/retrieval.hpp"

#include <gmock/gmock.h>

#include <new>

#include "runtime/own_policy.hpp"

namespace terrace {
namespace {

/// Which call finds no memory.
enum class Lacking : std::uint8_t { begin, piece };

class Greedy final : public testing::OwnPolicy {
 public:
  explicit Greedy(Lacking at) : OwnPolicy({.name = "greedy"}), at_(at) {}

  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 3;
  }
  [[nodiscard]] std::unique_ptr<IndexPart> begin_part(const BuildRequest& request,
                                                      std::size_t part) const override {
    if (part != 1) return OwnPolicy::begin_part(request, part);
    if (at_ == Lacking::begin) throw std::bad_alloc();
    return std::make_unique<Throwing>();
  }
  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> /*batch*/, Queue& queue,
                                      const Ops& /*ops*/) const override {
    return queue.record();
  }

 private:
  class Throwing final : public IndexPart {
   public:
    [[nodiscard]] Result<bool> do_piece() override { throw std::bad_alloc(); }
  };

  Lacking at_;
};

TEST(RetrievalPolicy, SaysThatMemoryIsLackingWhereAPartThrows) {
  for (const Lacking at : {Lacking::begin, Lacking::piece}) {
    const Greedy policy(at);
    Serial serial;
    const auto built = policy.build({}, serial);
    ASSERT_FALSE(built.has_value());
    EXPECT_EQ(built.error().code, Errc::out_of_memory);
    EXPECT_THAT(std::string(built.error().message()), ::testing::HasSubstr("policy greedy"));
  }
}

}  // namespace
}  // namespace terrace
