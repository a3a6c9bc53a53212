// The sums of a tile, some rows by one or two vectors of outputs, stay in registers while all
// inputs pass. The weights of a tile's outputs serve all rows while they are in the nearest cache.
#include "terrace/kernels/dense_layer.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/dense_layer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t tile_sums = 8;  // vectors: so many keep two pipes of fused products busy

HWY_INLINE Floats load_some(const float* at, std::size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(at);
  return count >= lanes ? F32Elements::load(bytes) : load_tail<F32Elements>(bytes, count);
}

HWY_INLINE void store_some(Floats values, std::size_t count, float* at) {
  if (count >= lanes) return hn::StoreU(values, FloatTag(), at);
  alignas(64) float whole[lanes];
  hn::Store(values, FloatTag(), whole);
  std::memcpy(at, whole, count * sizeof(float));
}

/// Computes `rows` rows of the `count` outputs from `first` on; `count` is at most vectors * lanes.
template <std::size_t rows, std::size_t vectors>
HWY_INLINE void dense_tile(const DenseLayer& layer, std::size_t row, std::size_t first,
                           std::size_t count) {
  const FloatTag tag;
  const auto some = [&](std::size_t v) { return count - HWY_MIN(count, v * lanes); };
  Floats sums[rows * vectors];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < rows * vectors; ++i) {
    sums[i] = load_some(layer.bias + first + i % vectors * lanes, some(i % vectors));
  }
  const float* const source = layer.source + row * layer.source_stride;
  for (std::size_t input = 0; input < layer.inputs; ++input) {
    const float* const weight = layer.weight + input * layer.outputs + first;
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) {
      const Floats factors = load_some(weight + v * lanes, some(v));
#pragma GCC unroll 8
      for (std::size_t r = 0; r < rows; ++r) {
        const Floats element = hn::Set(tag, source[r * layer.source_stride + input]);
        sums[r * vectors + v] = hn::MulAdd(element, factors, sums[r * vectors + v]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < rows * vectors; ++i) {
    float* const at = layer.target + (row + i / vectors) * layer.outputs + first;
    const Floats sum = layer.rectify ? hn::Max(sums[i], hn::Zero(tag)) : sums[i];
    store_some(sum, some(i % vectors), at + i % vectors * lanes);
  }
}

/// Computes `count` outputs of all rows.
template <std::size_t vectors>
HWY_INLINE void dense_outputs(const DenseLayer& layer, std::size_t first, std::size_t count) {
  constexpr std::size_t rows = tile_sums / vectors;
  std::size_t row = 0;
  for (; row + rows <= layer.rows; row += rows) {
    dense_tile<rows, vectors>(layer, row, first, count);
  }
  for (; row < layer.rows; ++row) dense_tile<1, vectors>(layer, row, first, count);
}

void dense(const DenseLayer& layer) {
  std::size_t first = 0;
  for (; first + 2 * lanes <= layer.outputs; first += 2 * lanes) {
    dense_outputs<2>(layer, first, 2 * lanes);
  }
  for (; first < layer.outputs; first += lanes) {
    dense_outputs<1>(layer, first, HWY_MIN(lanes, layer.outputs - first));
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(dense);

void dense_layer(const DenseLayer& layer) noexcept { HWY_DYNAMIC_DISPATCH(dense)(layer); }

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
