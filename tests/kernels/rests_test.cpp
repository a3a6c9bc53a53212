#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/rests_scene.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/core/op_arguments.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using ::testing::HasSubstr;
using testing::make_shape;
using testing::run;
using testing::rests_scene::candidates;
using testing::rests_scene::entries_max;
using testing::rests_scene::first;
using testing::rests_scene::groups;
using testing::rests_scene::page_tokens;
using testing::rests_scene::Scene;
using testing::rests_scene::tokens;

constexpr KvShape small{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 20};
// Pages 1 to 14 have candidates alone: the candidates begin with token 7 and end with token 253.
constexpr std::size_t first_page = 1;
constexpr std::size_t whole_pages = 14;

/// Rests are numbers of the dtype where they are written down.
float tolerance_of(Dtype dtype) { return dtype == Dtype::bf16 ? 0.03F : 0.004F; }

void expect_as_reference(Scene& scene, Scene& expected) {
  run(scene.op);
  kernels::reference::decode_attention(expected.op);
  const KvShape& shape = scene.op.shape;
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    EXPECT_EQ(scene.pseudo_counts[head], expected.pseudo_counts[head]) << "head " << head;
    EXPECT_EQ(scene.counted[head], expected.counted[head]) << "head " << head;
    EXPECT_EQ(scene.counted[head], scene.pseudo_counts[head]) << "head " << head;
  }
  for (std::size_t i = 0; i < shape.query_heads * shape.head_dim; ++i) {
    if (std::isnan(expected.output[i])) {
      ASSERT_TRUE(std::isnan(scene.output[i])) << "number " << i;
    } else {
      ASSERT_NEAR(scene.output[i], expected.output[i], tolerance_of(shape.dtype)) << "number " << i;
    }
  }
  EXPECT_TRUE(scene.output.intact() && scene.attention_scratch.intact() && scene.scratch.intact() &&
              scene.means.intact() && scene.pseudo_rows.intact() && scene.pseudo_bias.intact() &&
              scene.pseudo_counts.intact() && scene.counted.intact());
}

TEST(Rests, AreAttendedToAsByTheReference) {
  std::size_t number = 0;
  for (const std::size_t group : {1UL, 3UL, 5UL}) {
    for (const std::size_t dims : {16UL, 20UL, 80UL, 128UL}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        if (!testing::takes_shape(number++)) continue;
        const KvShape shape = make_shape(group, 2, dims, dtype);
        const std::size_t most = std::array{45UL, 0UL, 1UL, 17UL}[number % 4];
        SCOPED_TRACE(testing::to_text(shape) + ", most " + std::to_string(most) + ", " +
                     testing::seed_text());
        Scene scene(shape);
        Scene expected(shape);
        for (Scene* const one : {&scene, &expected}) {
          one->op.rests.most = most;
          one->select(2 + number % 3);
        }
        expect_as_reference(scene, expected);
      }
    }
  }
}

/// Groups of whole pages that have tokens.
std::size_t groups_with_tokens(const Scene& scene) {
  std::size_t count = 0;
  for (std::size_t page = first_page; page < first_page + whole_pages; ++page) {
    const auto* const begin = scene.group_of.data() + page * page_tokens;
    for (std::size_t group = 0; group < groups; ++group) {
      if (std::count(begin, begin + page_tokens, group) > 0) ++count;
    }
  }
  return count;
}

TEST(Rests, LeavesOutGroupsThatAreSelectedWhole) {
  for (const std::size_t most : {entries_max, std::size_t{30}, std::size_t{3}}) {
    Scene scene(small);
    Scene expected(small);
    for (Scene* const one : {&scene, &expected}) {
      one->op.rests.most = most;
      one->select(1000);
      one->counts[0] = 0;
      for (std::size_t i = 0; i < page_tokens; ++i) {
        one->select(0, first + 4 * page_tokens + i);  // a page of one group
      }
    }
    expect_as_reference(scene, expected);
    EXPECT_EQ(scene.pseudo_counts[0], std::min(most, groups_with_tokens(scene) - 1));
    EXPECT_EQ(scene.pseudo_counts[1], std::min(most, groups_with_tokens(scene)));
  }
}

TEST(Rests, OfAGroupThatIsNotSelectedAreItsMean) {
  Scene scene(small);
  scene.select(1000);
  kernels::reference::estimate_rest(kernels::EstimateRest::of(scene.op));
  // The entry of the page with one group follows the entries of the pages before.
  std::size_t entry = 0;
  for (std::size_t page = first_page; page < 4; ++page) {
    const auto* const begin = scene.group_of.data() + page * page_tokens;
    for (std::size_t group = 0; group < groups; ++group) {
      if (std::count(begin, begin + page_tokens, group) > 0) ++entry;
    }
  }
  for (std::size_t head = 0; head < small.kv_heads; ++head) {
    const std::byte* const row = scene.pseudo_rows[head * entries_max + entry];
    EXPECT_FLOAT_EQ(scene.pseudo_bias[head * entries_max + entry], std::log(16.0F));
    for (std::size_t k = 0; k < 2 * small.head_dim; ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < page_tokens; ++i) {
        sum += double{load_f32(scene.store.row(head, first + 4 * page_tokens + i), small.dtype, k)};
      }
      EXPECT_NEAR(load_f32(row, small.dtype, k), sum / page_tokens, 2e-3);
    }
  }
}

/// The output of an attention without rests.
std::vector<float> output_alone(Scene& scene) {
  DecodeAttention alone = scene.op;
  alone.rests = {};
  run(alone);
  return {scene.output.span().begin(), scene.output.span().end()};
}

TEST(Rests, AreNoneWherePagesAreNotAllCandidates) {
  for (const TokenRange range : {TokenRange{}, TokenRange{first + 1, first + 2 * page_tokens - 1},
                                 TokenRange{first + 40, first + 41}}) {
    Scene scene(small);
    scene.op.rests.candidates = range;
    for (std::uint32_t& count : scene.counts.span()) count = std::min(count, 1U);
    const std::vector<float> alone = output_alone(scene);
    run(scene.op);
    EXPECT_EQ(scene.pseudo_counts[0], 0U);
    EXPECT_EQ(scene.pseudo_counts[1], 0U);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(scene.output[i], alone[i], 1e-4F);
  }
}

TEST(Rests, OfNoRowsAreWhatIsAttendedToWithoutSinksAndWindow) {
  Scene scene(small);
  Scene expected(small);
  for (Scene* const one : {&scene, &expected}) {
    one->op.sinks = one->op.window = {};
    for (std::uint32_t& count : one->counts.span()) count = 0;
  }
  expect_as_reference(scene, expected);
}

TEST(Rests, HaveNothingOfATokenOfNoGroup) {
  for (const std::size_t step : {1000UL, 3UL}) {
    Scene scene(small);
    Scene expected(small);
    for (Scene* const one : {&scene, &expected}) {
      const std::size_t at = 2 * page_tokens + 3;
      store_f32(one->store.row(0, first + at), small.dtype, 4,
                std::numeric_limits<float>::quiet_NaN());
      one->group_of[at] = GroupShape::none;
      one->average();
      one->select(step);
    }
    expect_as_reference(scene, expected);
    if (step == 1000) {
      for (const float x : scene.output.span()) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

TEST(FitsAGroup, WhateverAPageCanSum) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const std::size_t at : {0UL, 19UL, 39UL}) {
      std::vector<std::byte> row(40 * size_bytes(dtype));
      const auto fits = [&](float number) {
        store_f32(row.data(), dtype, at, number);
        return kernels::host::fits_a_group(row.data(), dtype, 40);
      };
      EXPECT_TRUE(fits(-1e36F));
      EXPECT_FALSE(fits(2e36F));
      EXPECT_FALSE(fits(-std::numeric_limits<float>::infinity()));
      EXPECT_FALSE(fits(std::numeric_limits<float>::quiet_NaN()));
      EXPECT_TRUE(fits(0.0F));
    }
  }
}

TEST(Rests, RefusesArgumentsThatDoNotFit) {
  Scene scene(small);
  using Op = DecodeAttention;
  const auto refusal = [&](void (*change)(Op&)) {
    Op op = scene.op;
    change(op);
    const Status valid = validate(op);
    return valid ? std::string() : std::string(valid.error().message());
  };
  EXPECT_EQ(refusal([](Op&) {}), "");
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.page_tokens = 7; }), HasSubstr("page_tokens"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.page_tokens = 0; }), HasSubstr("page_tokens"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.page_tokens = 512; }), HasSubstr("page"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.groups = 0; }), HasSubstr("groups.groups"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.groups = 256; }), HasSubstr("groups.groups"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.groups.chunk_begin = 6; }), HasSubstr("chunk_begin"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.candidates.end = 1000; }), HasSubstr("coded"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.pseudo.stride = 2; }), HasSubstr("stride"));
  EXPECT_THAT(refusal([](Op& o) { o.selected = nullptr; }), HasSubstr("selected must be given"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.pseudo.bias = nullptr; }), HasSubstr("pseudo"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.pseudo.count = nullptr; }), HasSubstr("pseudo"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.means = nullptr; }), HasSubstr("means"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.scratch = nullptr; }), HasSubstr("scratch"));
  EXPECT_THAT(refusal([](Op& o) { o.rests.scratch = o.rests.pseudo.bias; }), HasSubstr("overlap"));
  EXPECT_THAT(refusal([](Op& o) { o.scope = ListScope::query_head; }), HasSubstr("KV heads"));
  EXPECT_THAT(refusal([](Op& o) { o.selected_bias = o.rests.pseudo.bias; }), HasSubstr("bias"));
  EXPECT_THAT(refusal([](Op& o) { o.pseudo.count = o.rests.pseudo.count; }),
              HasSubstr("pseudo-entries"));
}

}  // namespace
}  // namespace terrace
