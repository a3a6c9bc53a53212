// Arguments of ops that are right, and the check that each change for the worse is refused in one
// line that says what is wrong.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "terrace/core/op_arguments.hpp"

namespace terrace {

/// A change for the worse, and words of the refusal.
template <typename Op>
struct BadArgument {
  std::function<void(Op&)> make;
  const char* text;
};

class OpArguments : public ::testing::Test {
 protected:
  static constexpr std::size_t absurd = std::size_t{1} << 62;
  static constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  static constexpr std::size_t query_floats = shape.query_heads * shape.head_dim;

  /// Larger than what any argument here points to.
  static constexpr std::size_t room_bytes = std::size_t{1} << 14;

  /// The same address as memory of another kind.
  template <typename T, typename Other>
  static T* as(const Other* memory) {
    return reinterpret_cast<T*>(const_cast<Other*>(memory));
  }

  /// Returns memory that nothing else points to, all zeros.
  template <typename T>
  [[nodiscard]] T* room() {
    rooms_.push_back(std::make_unique<std::byte[]>(room_bytes));
    return reinterpret_cast<T*>(rooms_.back().get());
  }
  [[nodiscard]] std::byte** table() {
    auto* const entries = room<std::byte*>();
    entries[0] = room<std::byte>();
    return entries;
  }

  [[nodiscard]] IndexView index() {
    return {.fixed = room<std::byte>(),
            .chunks = table(),
            .chunk_tokens = 64,
            .first_token = 4,
            .token_count = 56};
  }
  [[nodiscard]] SelectCommon common() {
    return {.shape = shape,
            .query = room<float>(),
            .candidates = {4, 60},
            .count = {.mean = 10, .shares = room<std::uint32_t>()},
            .ids = room<std::uint32_t>(),
            .id_count = room<std::uint32_t>(),
            .id_stride = 10,
            .scratch = room<float>()};
  }

  [[nodiscard]] BlockTable blocks() { return {.blocks = table(), .block_tokens = 64}; }
  [[nodiscard]] ResolveRows resolve() {
    return {.shape = shape,
            .scope = ListScope::query_head,
            .ids = room<std::uint32_t>(),
            .id_count = room<std::uint32_t>(),
            .id_stride = 10,
            .resident = blocks(),
            .cached = {room<std::uint32_t>(), table(), 64},
            .slots = {.count = 64, .each = room<RowSlot>(), .calls = room<std::uint32_t>()},
            .slot_counts = room<RowSlotCounts>(),
            .staging = room<std::byte>(),
            .rows = room<std::byte*>(),
            .missed = room<MissedRow>(),
            .missed_count = room<std::uint32_t>(),
            .seen = room<std::uint32_t>(),
            .seen_epoch = room<std::uint32_t>(),
            .seen_stride = 64};
  }
  [[nodiscard]] PseudoTarget pseudo() {
    return {room<const std::byte*>(), room<float>(), room<std::uint32_t>(), 5};
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
      EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr(each.text));
      EXPECT_THAT(std::string(refused.error().message()),
                  ::testing::Not(::testing::HasSubstr("\n")));
    }
  }

  /// Expects the refusals that every selecting op has in common.
  template <typename Op>
  static void expect_refused_selection(const Op& op) {
    expect_refused<Op>(op, {{[](Op& o) { o.common.shape.head_dim = 0; }, "has a zero"},
                            {[](Op& o) { o.common.shape.head_dim = absurd; }, "head_dim"},
                            {[](Op& o) { o.common.shape.query_heads = 3; }, "no multiple"},
                            {[](Op& o) { o.common.shape.query_heads = absurd; }, "2^24"},
                            {[](Op& o) { o.common.query = nullptr; }, "query"},
                            {[](Op& o) { o.common.ids = nullptr; }, "ids"},
                            {[](Op& o) { o.common.id_count = nullptr; }, "id_count"},
                            {[](Op& o) { o.common.scratch = nullptr; }, "scratch"},
                            {[](Op& o) { o.common.count.mean = 11; }, "id_stride"},
                            {[](Op& o) { o.common.candidates.end = absurd; }, "2^32"},
                            {[](Op& o) { o.common.candidates.end = 3; }, "range"},
                            {[](Op& o) { o.common.candidates.begin = 3; }, "before the index"},
                            {[](Op& o) { o.index.chunks = nullptr; }, "index"},
                            {[](Op& o) { o.index.token_count = 55; }, "fewer tokens"},
                            {[](Op& o) { o.index.chunk_tokens = 0; }, "chunks"},
                            {[](Op& o) { o.index.chunk_tokens = absurd; }, "chunks"}});
    expect_refused_overlaps(op);
    Op none = op;
    none.common.count.mean = 0;
    none.common.ids = nullptr;
    EXPECT_TRUE(validate(none).has_value());
    Op all = op;
    all.common.count.mean = absurd;
    all.common.candidates.end = all.common.candidates.begin + all.common.id_stride;
    EXPECT_TRUE(validate(all).has_value());
  }

  template <typename Op>
  static void expect_refused_overlaps(const Op& op) {
    const auto words = [](const float* floats) { return as<std::uint32_t>(floats); };
    expect_refused<Op>(
        op,
        {{[](Op& o) { o.common.id_count = o.common.ids + 19; }, "ids must not overlap id_count"},
         {[&](Op& o) { o.common.ids = words(o.common.scratch) + 100; },
          "ids must not overlap scratch"},
         {[&](Op& o) { o.common.ids = words(o.common.query); }, "ids must not overlap query"},
         {[&](Op& o) { o.common.id_count = words(o.common.scratch + 383); },
          "id_count must not overlap scratch"},
         {[&](Op& o) { o.common.id_count = words(o.common.query); },
          "id_count must not overlap query"},
         {[](Op& o) { o.common.query = o.common.scratch + 383; }, "scratch must not overlap query"},
         {[](Op& o) { o.common.count.shares = o.common.id_count + 1; },
          "id_count must not overlap count.shares"}});
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> rooms_;
};

}  // namespace terrace
