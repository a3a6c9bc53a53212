// Logits by some channels of keys.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "host/scores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/channel_scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

#ifndef TERRACE_KERNELS_CHANNEL_SCORES_ONCE
#define TERRACE_KERNELS_CHANNEL_SCORES_ONCE
namespace terrace::kernels::host {

constexpr std::size_t channel_queries_max = 4;  // query heads at once

/// A run of tokens side by side, the channels of their keys, and where logits go.
struct ChannelRun {
  const std::byte* tokens;      // in channel 0 of those stored
  const std::uint32_t* places;  // [channels]: those that are read, counted in what is stored
  const float* factors;         // [channels, channel_queries_max]
  std::size_t channels;
  std::size_t channel_bytes;  // from one channel to the next
  std::size_t queries;        // up to 4
  std::size_t count;          // tokens
  float* logits;              // [queries, stride]
  std::size_t stride;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Adds up the products of `vectors` vectors of tokens, the channels one after the other. Products
/// are rounded before they are added: so each instruction set has the same bits.
template <typename Elements, std::size_t queries, std::size_t vectors, typename Load,
          typename Store>
HWY_INLINE void add_channels(const ChannelRun& run, std::size_t token, Load load, Store store) {
  const FloatTag tag;
  Floats sums[queries * vectors];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < queries * vectors; ++i) sums[i] = hn::Zero(tag);
  const std::byte* const first = run.tokens + token * Elements::bytes;
  for (std::size_t c = 0; c < run.channels; ++c) {
    const std::byte* const keys = first + run.places[c] * run.channel_bytes;
    const float* const factors = run.factors + c * channel_queries_max;
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      const Floats elements = load(keys + v * lanes * Elements::bytes);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < queries; ++q) {
        Floats& sum = sums[q * vectors + v];
        sum = hn::Add(sum, hn::Mul(hn::Set(tag, factors[q]), elements));
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t q = 0; q < queries; ++q) {
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      store(sums[q * vectors + v], run.logits + q * run.stride + token + v * lanes);
    }
  }
}

template <typename Elements, std::size_t queries>
HWY_INLINE void score_run_of(const ChannelRun& run) {
  // Sums fill half of the registers at most.
  constexpr std::size_t vectors = queries * 4 <= registers / 2 ? 4 : 2;
  const auto load = [](const std::byte* at) HWY_ATTR { return Elements::load(at); };
  const auto store = [](Floats sums, float* at) HWY_ATTR { hn::StoreU(sums, FloatTag(), at); };
  std::size_t token = 0;
  for (; token + vectors * lanes <= run.count; token += vectors * lanes) {
    add_channels<Elements, queries, vectors>(run, token, load, store);
  }
  for (; token + lanes <= run.count; token += lanes) {
    add_channels<Elements, queries, 1>(run, token, load, store);
  }
  const std::size_t left = run.count - token;
  if (left == 0) return;
  const auto load_some = [left](const std::byte* at)
                             HWY_ATTR { return load_tail<Elements>(at, left); };
  const auto store_some = [left](Floats sums, float* at) HWY_ATTR {
    alignas(64) float whole[lanes];
    hn::Store(sums, FloatTag(), whole);
    std::copy_n(whole, left, at);
  };
  add_channels<Elements, queries, 1>(run, token, load_some, store_some);
}

template <typename Elements>
HWY_INLINE void score_run_for(const ChannelRun& run) {
  if (run.queries == 4) return score_run_of<Elements, 4>(run);
  if (run.queries == 3) return score_run_of<Elements, 3>(run);
  if (run.queries == 2) return score_run_of<Elements, 2>(run);
  return score_run_of<Elements, 1>(run);
}

void score_run(const ChannelRun& run, Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return score_run_for<F32Elements>(run);
    case Dtype::f16:
      return score_run_for<F16Elements>(run);
    case Dtype::bf16:
      return score_run_for<Bf16Elements>(run);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(score_run);

namespace {

/// The channels that a KV head reads: their numbers, and their places in the index. Both rise if
/// the index has all channels.
class ReadChannels {
 public:
  ReadChannels(const ChannelSelect& op, std::size_t head) noexcept : count_(op.channels.count) {
    if (op.channels.partial) {
      const auto* const stored = reinterpret_cast<const std::uint32_t*>(op.index.fixed);
      std::copy_n(stored + head * count_, count_, numbers_.begin());
      std::iota(places_.begin(), places_.begin() + count(), 0U);
    } else {
      choose(op.common, head);
      std::copy_n(numbers_.begin(), count_, places_.begin());
    }
  }

  [[nodiscard]] std::span<const std::uint32_t> numbers() const noexcept {
    return std::span(numbers_).first(count_);
  }
  [[nodiscard]] const std::uint32_t* places() const noexcept { return places_.data(); }

 private:
  [[nodiscard]] std::ptrdiff_t count() const noexcept {
    return static_cast<std::ptrdiff_t>(count_);
  }

  void choose(const SelectCommon& common, std::size_t head) noexcept {
    const std::size_t dims = common.shape.head_dim;
    const std::size_t group = common.shape.group();
    std::array<float, KvShape::head_dim_max> sums;
    for (std::size_t i = 0; i < dims; ++i) {
      float sum = 0;
      for (std::size_t q = head * group; q < (head + 1) * group; ++q) {
        sum += std::abs(common.query[q * dims + i]);
      }
      sums[i] = std::isnan(sum) ? -1.0F : sum;
    }
    const std::span<std::uint32_t> all(numbers_.data(), dims);
    std::iota(all.begin(), all.end(), 0U);
    std::ranges::nth_element(all, all.begin() + count() - 1, [&](std::uint32_t a, std::uint32_t b) {
      return sums[a] != sums[b] ? sums[a] > sums[b] : a < b;
    });
    std::ranges::sort(all.first(count_));
  }

  std::size_t count_;
  std::array<std::uint32_t, KvShape::head_dim_max> numbers_;
  std::array<std::uint32_t, KvShape::head_dim_max> places_;
};

/// Returns what scores of some channels are multiplied by to be logits.
float channel_scale(const KvShape& shape, const float* query,
                    std::span<const std::uint32_t> channels) noexcept {
  float whole = 0;
  for (std::size_t i = 0; i < shape.head_dim; ++i) whole += std::abs(query[i]);
  if (!std::isfinite(whole)) return std::numeric_limits<float>::quiet_NaN();
  float part = 0;
  for (const std::uint32_t channel : channels) part += std::abs(query[channel]);
  const float share = part > 0 ? part / whole : 1.0F;
  const float scale = shape.softmax_scale;
  const auto divisor = scale != 0 ? 1 / (scale * scale) : static_cast<float>(shape.head_dim);
  return 1.0F / std::sqrt(divisor * share);
}

}  // namespace

void write_channel_logits(const ChannelSelect& op, std::size_t head, float* logits,
                          std::size_t stride) noexcept {
  const KvShape& shape = op.common.shape;
  const std::size_t dims = shape.head_dim;
  const std::size_t channel_bytes = op.index.chunk_tokens * size_bytes(shape.dtype);
  const ReadChannels read(op, head);
  const std::span<const std::uint32_t> channels = read.numbers();
  std::array<float, channel_queries_max * KvShape::head_dim_max> factors;
  for (std::size_t done = 0; done < shape.group(); done += channel_queries_max) {
    const std::size_t queries = std::min(channel_queries_max, shape.group() - done);
    for (std::size_t q = 0; q < queries; ++q) {
      const float* const query = op.common.query + (head * shape.group() + done + q) * dims;
      const float scale = channel_scale(op.common.shape, query, channels);
      for (std::size_t c = 0; c < channels.size(); ++c) {
        factors[c * channel_queries_max + q] = query[channels[c]] * scale;
      }
    }
    for_each_chunk(
        op.index, op.common.candidates,
        [&](const std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
          const std::byte* const plane = chunk + head * op.channels.stored(shape) * channel_bytes;
          const ChannelRun run{.tokens = plane + offset * size_bytes(shape.dtype),
                               .places = read.places(),
                               .factors = factors.data(),
                               .channels = channels.size(),
                               .channel_bytes = channel_bytes,
                               .queries = queries,
                               .count = count,
                               .logits = logits + done * stride + first,
                               .stride = stride};
          HWY_DYNAMIC_DISPATCH(score_run)(run, shape.dtype);
        });
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
