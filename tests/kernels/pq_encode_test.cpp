// Product-quantisation codes against the reference, and what they mean.
#include "terrace/kernels/pq_encode.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "kernels/finds_fault.hpp"
#include "kernels/part_threads.hpp"
#include "kernels/pq_index.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using kernels::PqEncode;
using testing::BlockStore;
using testing::make_shape;
using testing::PqIndex;

void run(const PqEncode& op) {
  testing::PartThreads threads(2);
  const Status coded = kernels::host::pq_encode(op, threads);
  ASSERT_TRUE(coded.has_value()) << coded.error().message();
}

double distance(const BlockStore& store, PqIndex& index, PqShape pq, std::size_t head,
                std::size_t subspace, std::size_t position, std::size_t c) {
  const std::size_t dims = store.shape().head_dim / pq.subspaces;
  double sum = 0;
  for (std::size_t i = 0; i < dims; ++i) {
    const double difference = double{store.key(head, position, subspace * dims + i)} -
                              double{index.centroid(head, subspace, c)[i]};
    sum += difference * difference;
  }
  return sum;
}

void expect_nearest_codes(const BlockStore& store, PqIndex& index, PqShape pq, TokenRange tokens) {
  // Compared are f32 sums of size |x|^2 + |c|^2 < 3 d: wrong by 1e-6 of that at most.
  const std::size_t dims = store.shape().head_dim / pq.subspaces;
  const double tolerance = 3e-6 * static_cast<double>(dims);
  for (std::size_t p = tokens.begin; p < tokens.end; ++p) {
    for (std::size_t part = 0; part < store.shape().kv_heads * pq.subspaces; ++part) {
      const std::size_t head = part / pq.subspaces;
      const std::size_t j = part % pq.subspaces;
      const auto code = std::to_integer<std::size_t>(index.code(head, j, p));
      const double chosen = distance(store, index, pq, head, j, p, code);
      for (std::size_t c = 0; c < pq.centroids(); ++c) {
        EXPECT_LE(chosen, distance(store, index, pq, head, j, p, c) + tolerance);
      }
    }
  }
}

TEST(PqEncode, CodesEachSubvectorWithItsNearestCentroid) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const auto& [head_dim, subspaces, bits] : {std::tuple{2U, 2U, 1U},
                                                    {6U, 3U, 3U},
                                                    {64U, 2U, 6U},
                                                    {80U, 4U, 5U},
                                                    {130U, 2U, 8U},
                                                    {1024U, 1U, 4U}}) {
      for (const std::size_t kv_heads : {1U, 3U}) {
        const KvShape shape = make_shape(1, kv_heads, head_dim, dtype);
        const PqShape pq{.subspaces = subspaces, .bits = bits};
        SCOPED_TRACE(testing::to_text(shape) + ", m " + std::to_string(subspaces) + ", b " +
                     std::to_string(bits) + ", " + testing::seed_text());
        BlockStore store(shape, 7, 60, 1);
        store.fill_normal(5);
        PqIndex index(shape, pq, 13, 52, 6);
        run(PqEncode{.shape = shape,
                     .pq = pq,
                     .rows = store.table(),
                     .tokens = {8, 57},
                     .index = index.view()});
        expect_nearest_codes(store, index, pq, {8, 57});
        EXPECT_TRUE(index.intact());
        EXPECT_EQ(index.code(0, 0, 7), std::byte{0}) << "a token that was not asked for";
      }
    }
  }
}

TEST(PqEncode, FindsAWrongCode) {
  const KvShape shape = make_shape(1, 2, 130, Dtype::f16);
  const PqShape pq{.subspaces = 2, .bits = 8};  // the most centroids, and so the nearest to another
  BlockStore store(shape, 16, 40);
  store.fill_normal(5);
  PqIndex index(shape, pq, 40, 40, 0);
  run(PqEncode{
      .shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 40}, .index = index.view()});
  for (std::size_t p = 0; p < 40; ++p) {
    std::byte& code = index.code(p % 2, p / 2 % 2, p);
    const std::byte right = std::exchange(code, code ^ std::byte{1});
    EXPECT_TRUE(testing::finds_fault([&] { expect_nearest_codes(store, index, pq, {p, p + 1}); }))
        << p << ", " << testing::seed_text();
    code = right;
  }
}

TEST(PqEncode, AgreesExactlyWithTheReferenceOnSmallWholeNumbers) {
  // All sums are exact in f32, so that ties are ties and must go to the lower centroid.
  const KvShape shape = make_shape(1, 2, 8, Dtype::f16);
  const PqShape pq{.subspaces = 2, .bits = 5};
  Rng rng(testing::seed());
  BlockStore store(shape, 16, 300);
  store.fill(
      [&rng](std::size_t, std::size_t, std::size_t) { return static_cast<float>(rng.below(3)); });
  PqIndex index(shape, pq, 300, 300, 0);
  PqIndex expected(shape, pq, 300, 300, 0);
  for (std::size_t head = 0; head < 2; ++head) {
    for (std::size_t i = 0; i < 2 * 32 * 4; ++i) {
      index.centroid(head, 0, 0)[i] = expected.centroid(head, 0, 0)[i] =
          static_cast<float>(rng.below(3));
    }
  }
  PqEncode op{.shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 300}};
  op.index = index.view();
  run(op);
  op.index = expected.view();
  kernels::reference::pq_encode(op);
  for (std::size_t p = 0; p < 300; ++p) {
    for (std::size_t part = 0; part < 4; ++part) {
      ASSERT_EQ(index.code(part / 2, part % 2, p), expected.code(part / 2, part % 2, p))
          << testing::seed_text();
    }
  }
}

TEST(PqEncode, GivesCodeZeroToWhatHasNoDistances) {
  const KvShape shape = make_shape(1, 1, 20, Dtype::f32);
  const PqShape pq{.subspaces = 2, .bits = 4};
  BlockStore store(shape, 8, 24);
  store.fill_normal(6);
  const float odd[] = {std::nanf(""), -HUGE_VALF, 1e30F};
  for (std::size_t p = 0; p < 24; ++p) {
    store_f32(store.row(0, p), Dtype::f32, 10 + p % 10, odd[p % 3]);
  }
  PqIndex index(shape, pq, 24, 24, 0);
  index.fill_codes();
  run(PqEncode{
      .shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 24}, .index = index.view()});
  for (std::size_t p = 0; p < 24; ++p) EXPECT_EQ(index.code(0, 1, p), std::byte{0});
}

// f16's denormals are normal numbers of f32: whole multiples of the least one are told apart
// exactly, and so are ties. Squares of f32's own are zero: there all centroids are tied.
TEST(PqEncode, ReadsDenormals) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    const float tiny = dtype == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
    const KvShape shape = make_shape(1, 2, 74, dtype);
    const PqShape pq{.subspaces = 2, .bits = 6};
    SCOPED_TRACE(testing::to_text(shape) + ", " + testing::seed_text());
    BlockStore store(shape, 16, 300);
    Rng rng(testing::seed(), {17});
    const auto draw = [&] { return static_cast<float>(rng.below(7)) * tiny; };
    store.fill([&](std::size_t, std::size_t, std::size_t) { return draw(); });
    PqIndex index(shape, pq, 300, 300, 0);
    PqIndex expected(shape, pq, 300, 300, 0);
    for (std::size_t i = 0; i < shape.kv_heads * pq.centroids() * shape.head_dim; ++i) {
      index.centroid(0, 0, 0)[i] = expected.centroid(0, 0, 0)[i] = draw();
    }
    PqEncode op{.shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 300}};
    index.fill_codes();
    op.index = index.view();
    run(op);
    op.index = expected.view();
    if (dtype == Dtype::f16) kernels::reference::pq_encode(op);
    for (std::size_t p = 0; p < 300; ++p) {
      for (std::size_t part = 0; part < 4; ++part) {
        ASSERT_EQ(index.code(part / 2, part % 2, p), expected.code(part / 2, part % 2, p));
      }
    }
  }
}

TEST(PqEncode, RefusesWhatIsNotThere) {
  const KvShape shape = make_shape(1, 2, 64, Dtype::f16);
  const PqShape pq{.subspaces = 2, .bits = 4};
  BlockStore store(shape, 8, 24);
  store.fill_normal(3);
  PqIndex index(shape, pq, 16, 20, 4);
  std::byte* const holes[] = {store.table().blocks[0], nullptr, store.table().blocks[2]};
  std::byte* const nothing[] = {nullptr};
  const PqEncode right{
      .shape = shape, .pq = pq, .rows = store.table(), .tokens = {5, 19}, .index = index.view()};
  const std::vector<std::pair<std::function<void(PqEncode&)>, const char*>> bad = {
      {[](PqEncode& o) { o.shape.query_heads = 0; }, "has a zero"},
      {[](PqEncode& o) { o.shape.head_dim = 63; }, "head_dim 63"},
      {[](PqEncode& o) { o.shape.head_dim = 2048; }, "head_dim 2048"},
      {[](PqEncode& o) { o.pq.subspaces = 0; }, "pq.subspaces 0"},
      {[](PqEncode& o) { o.pq.subspaces = 3; }, "pq.subspaces 3"},
      {[](PqEncode& o) { o.pq.bits = 0; }, "pq.bits is 0"},
      {[](PqEncode& o) { o.pq.bits = 9; }, "pq.bits is 9"},
      {[](PqEncode& o) { o.rows.blocks = nullptr; }, "blocks"},
      {[](PqEncode& o) { o.rows.block_tokens = 0; }, "blocks"},
      {[&](PqEncode& o) { o.rows.blocks = holes; }, "every block"},
      {[](PqEncode& o) { o.tokens = {19, 5}; }, "tokens"},
      {[](PqEncode& o) { o.tokens.begin = 3; }, "before the index"},
      {[](PqEncode& o) { o.index.fixed = nullptr; }, "codebooks"},
      {[](PqEncode& o) { o.index.chunks = nullptr; }, "chunks"},
      {[](PqEncode& o) { o.index.chunk_tokens = 0; }, "chunks"},
      {[&](PqEncode& o) { o.index.chunks = nothing; }, "every chunk"}};
  Serial alone;
  for (const auto& [make, text] : bad) {
    PqEncode wrong = right;
    make(wrong);
    const Status refused = kernels::host::pq_encode(wrong, alone);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code, Errc::invalid_argument);
    EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr(text));
    for (std::size_t p = 5; p < 19; ++p) ASSERT_EQ(index.code(1, 1, p), std::byte{0}) << text;
  }
  run(right);
  run({.shape = shape, .pq = pq, .tokens = {5, 5}});  // nothing is coded
}

TEST(PqEncode, GivesATokenTheSameCodeAloneAndAmongOthers) {
  const KvShape shape = make_shape(1, 2, 64, Dtype::f16);
  const PqShape pq{.subspaces = 4, .bits = 6};
  BlockStore store(shape, 32, 200);
  store.fill_normal(7);
  PqIndex together(shape, pq, 64, 200, 0);
  PqIndex alone(shape, pq, 64, 200, 0);
  PqEncode op{.shape = shape, .pq = pq, .rows = store.table(), .tokens = {0, 200}};
  op.index = together.view();
  run(op);
  op.index = alone.view();
  for (std::size_t p = 0; p < 200; ++p) {
    op.tokens = {p, p + 1};
    run(op);
    for (std::size_t part = 0; part < 8; ++part) {
      ASSERT_EQ(alone.code(part / 4, part % 4, p), together.code(part / 4, part % 4, p));
    }
  }
}

}  // namespace
}  // namespace terrace
