// Bad arguments of ops are refused in one line that says what is wrong.
#include "terrace/core/op_arguments.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <vector>

namespace terrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t absurd = std::size_t{1} << 62;

/// Memory that arguments point to; nobody reads it.
struct Memory {
  std::byte byte{};
  std::byte* block = &byte;
  const std::byte* row = &byte;
  float number = 0;
  std::uint32_t count = 0;
  MassBounds mass;
};

template <typename Op>
struct BadArgument {
  std::function<void(Op&)> make;
  const char* text;
};

class OpArguments : public ::testing::Test {
 protected:
  [[nodiscard]] IndexView index() {
    return {.fixed = &memory_.byte, .chunks = &memory_.block, .chunk_tokens = 64, .first_token = 4};
  }
  [[nodiscard]] SelectCommon common() {
    return {.shape = {.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16},
            .query = &memory_.number,
            .candidates = {4, 60},
            .count = {.mean = 10},
            .ids = &memory_.count,
            .id_count = &memory_.count,
            .id_stride = 10,
            .scratch = &memory_.number};
  }

  /// Checks that `op` is right, and wrong as soon as one of `bad` is made.
  template <typename Op>
  static void expect_refused(const Op& op, const std::vector<BadArgument<Op>>& bad) {
    EXPECT_TRUE(validate(op).has_value()) << validate(op).error().message();
    for (const BadArgument<Op>& each : bad) {
      Op wrong = op;
      each.make(wrong);
      const Status refused = validate(wrong);
      ASSERT_FALSE(refused.has_value()) << each.text;
      EXPECT_EQ(refused.error().code, Errc::invalid_argument);
      EXPECT_THAT(std::string(refused.error().message()), HasSubstr(each.text));
      EXPECT_THAT(std::string(refused.error().message()), Not(HasSubstr("\n")));
    }
  }

  /// What every selecting op is refused for.
  template <typename Op>
  static void expect_refused_selection(const Op& op) {
    expect_refused<Op>(op, {{[](Op& o) { o.common.shape.head_dim = 0; }, "has a zero"},
                            {[](Op& o) { o.common.shape.head_dim = absurd; }, "head_dim"},
                            {[](Op& o) { o.common.shape.query_heads = 3; }, "no multiple"},
                            {[](Op& o) { o.common.query = nullptr; }, "query"},
                            {[](Op& o) { o.common.ids = nullptr; }, "ids"},
                            {[](Op& o) { o.common.id_count = nullptr; }, "id_count"},
                            {[](Op& o) { o.common.scratch = nullptr; }, "scratch"},
                            {[](Op& o) { o.common.count.mean = 11; }, "id_stride"},
                            {[](Op& o) { o.common.candidates.end = absurd; }, "2^32"},
                            {[](Op& o) { o.common.candidates.end = 3; }, "range"},
                            {[](Op& o) { o.common.candidates.begin = 3; }, "before the index"},
                            {[](Op& o) { o.index.chunks = nullptr; }, "index"},
                            {[](Op& o) { o.index.chunk_tokens = 0; }, "chunks"},
                            {[](Op& o) { o.index.chunk_tokens = absurd; }, "chunks"}});
  }

  Memory memory_;
};

TEST_F(OpArguments, OfExactSelect) {
  expect_refused_selection(ExactSelect{.common = common(), .index = index()});
}

TEST_F(OpArguments, OfPqSelect) {
  const PqSelect op{.common = common(), .index = index()};
  expect_refused_selection(op);
  expect_refused<PqSelect>(op, {{[](PqSelect& o) { o.pq.subspaces = 0; }, "pq.subspaces"},
                                {[](PqSelect& o) { o.pq.subspaces = 3; }, "pq.subspaces"},
                                {[](PqSelect& o) { o.pq.bits = 0; }, "pq.bits"},
                                {[](PqSelect& o) { o.pq.bits = 9; }, "pq.bits"},
                                {[](PqSelect& o) { o.index.fixed = nullptr; }, "codebooks"}});
}

TEST_F(OpArguments, OfPageSelect) {
  const PageSelect op{.common = common(), .pages = {.page_tokens = 16}, .index = index()};
  expect_refused_selection(op);
  expect_refused<PageSelect>(op,
                             {{[](PageSelect& o) { o.pages.page_tokens = 0; }, "page_tokens"},
                              {[](PageSelect& o) { o.pages.page_tokens = 24; }, "page_tokens"}});
}

TEST_F(OpArguments, OfClusterSelect) {
  const ClusterSelect op{
      .common = common(),
      .clusters = {.chunk_tokens = 64, .slots = 6, .estimates = true},
      .index = index(),
      .estimated = 5,
      .pseudo = {&memory_.row, &memory_.number, &memory_.count, 5},
      .resident = {&memory_.block, 64},
      .mass = &memory_.mass,
  };
  using Op = ClusterSelect;
  expect_refused_selection(op);
  expect_refused<Op>(op, {{[](Op& o) { o.clusters.slots = 0; }, "slots"},
                          {[](Op& o) { o.clusters.slots = absurd; }, "slots"},
                          {[](Op& o) { o.clusters.chunk_tokens = 32; }, "chunk_tokens"},
                          {[](Op& o) { o.clusters.estimates = false; }, "clusters.estimates"},
                          {[](Op& o) { o.scope = ListScope::query_head; }, "per KV head"},
                          {[](Op& o) { o.pseudo.bias = nullptr; }, "pseudo"},
                          {[](Op& o) { o.estimated = 6; }, "pseudo.stride"},
                          {[](Op& o) { o.resident.blocks = nullptr; }, "resident"},
                          {[](Op& o) { o.resident.block_tokens = 0; }, "resident"},
                          {[](Op& o) { o.window = {5, 4}; }, "window"}});
}

TEST_F(OpArguments, MayBeMissingWhereThereAreNoCandidates) {
  ExactSelect op{.common = common(), .index = index()};
  op.common.candidates.end = op.common.candidates.begin;
  op.common.query = nullptr;
  op.common.ids = nullptr;
  op.common.scratch = nullptr;
  op.index.chunks = nullptr;
  EXPECT_TRUE(validate(op).has_value());
}

}  // namespace
}  // namespace terrace
