// Reading keys as f32.
#include <gtest/gtest.h>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::Guarded;
using testing::make_shape;

TEST(ReadKeys, GivesEveryElementExactly) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t dims : {1U, 2U, 7U, 8U, 15U, 16U, 30U, 33U}) {
      const KvShape shape = make_shape(1, 2, 40, dtype);
      BlockStore store(shape, 3, 20, 1);
      store.fill_normal(3);
      Guarded<float> target(13 * dims);
      kernels::host::read_keys({.shape = shape,
                                .rows = store.table(),
                                .tokens = {5, 18},
                                .head = 1,
                                .first_dim = 6,
                                .dims = dims},
                               target.data());
      for (std::size_t t = 0; t < 13; ++t) {
        for (std::size_t i = 0; i < dims; ++i) {
          ASSERT_EQ(target[t * dims + i], store.key(1, 5 + t, 6 + i));
        }
      }
      EXPECT_TRUE(target.intact());
    }
  }
}

}  // namespace
}  // namespace terrace
