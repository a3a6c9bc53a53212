// The largest k of n: see terrace/kernels/topk.hpp.
#include "terrace/kernels/topk.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "host/weight_keys.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/rng.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/topk.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/weight_keys-inl.hpp"

#ifndef TERRACE_KERNELS_TOPK_ONCE
#define TERRACE_KERNELS_TOPK_ONCE
namespace terrace::kernels::host {

/// Keys between which the threshold is thought to lie.
struct Bracket {
  Key low = lowest_key;
  Key high = highest_key;
};

struct Bracketed {
  std::size_t above = 0;   // keys > high
  std::size_t within = 0;  // keys in [low, high], kept
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Calls each(i, keys, count) for vectors of keys; the last may be filled up with NaN.
template <typename Each>
HWY_INLINE void for_each_keys(const float* weights, std::size_t n, Each each) {
  const FloatTag tag;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) each(i, keys_of(hn::LoadU(tag, weights + i)), lanes);
  if (i == n) return;
  alignas(64) float rest[lanes];
  for (std::size_t j = 0; j < lanes; ++j) {
    rest[j] = i + j < n ? weights[i + j] : std::numeric_limits<float>::quiet_NaN();
  }
  each(i, keys_of(hn::Load(tag, rest)), n - i);
}

/// Keeps the keys within a bracket and counts those above it.
Bracketed keep_bracket(const float* weights, std::size_t n, Bracket bracket, Key* kept) {
  const KeyTag tag;
  Bracketed result;
  for_each_keys(weights, n, [&](std::size_t, Keys keys, std::size_t count) HWY_ATTR {
    const auto above = hn::Gt(keys, hn::Set(tag, bracket.high));
    const auto from_low = hn::Not(hn::Lt(keys, hn::Set(tag, bracket.low)));
    if (hn::AllFalse(tag, from_low)) return;
    result.above += hn::CountTrue(tag, above);
    const auto within = hn::AndNot(above, from_low);
    if (count == lanes) {
      // Writes a whole vector; it fits because no more keys are kept than were read.
      result.within += hn::CompressStore(keys, within, tag, kept + result.within);
      return;
    }
    alignas(64) Key rest[lanes];
    hn::Store(keys, tag, rest);
    const std::uint64_t bits = bits_of(tag, within);
    for (std::size_t j = 0; j < count; ++j) {
      if ((bits >> j & 1) != 0) kept[result.within++] = rest[j];
    }
  });
  return result;
}

/// Returns how many keys are at least `key`.
HWY_INLINE std::size_t count_from(const Key* keys, std::size_t n, Key key) {
  const KeyTag tag;
  const Keys least = hn::Set(tag, key);
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    count += hn::CountTrue(tag, hn::Not(hn::Lt(hn::LoadU(tag, keys + i), least)));
  }
  for (; i < n; ++i) count += keys[i] >= key ? 1U : 0U;
  return count;
}

/// Returns the `place`-th largest key, 0 < place <= n. It halves the range of what the key can be
/// until one is left: counting takes a vector at a time, which putting keys in order does not.
Key nth_largest(const Key* keys, std::size_t n, std::size_t place) {
  const auto [least, most] = std::minmax_element(keys, keys + n);
  std::int64_t low = *least;
  std::int64_t high = *most;
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (count_from(keys, n, static_cast<Key>(middle)) >= place) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<Key>(low);
}

/// Writes the indices of keys above a threshold and of the first ties with it.
std::size_t write_ids(const float* weights, std::size_t n, Threshold threshold,
                      std::uint32_t* ids) {
  const KeyTag tag;
  std::size_t written = 0;
  for_each_keys(weights, n, [&](std::size_t i, Keys keys, std::size_t count) HWY_ATTR {
    const auto reached = hn::Not(hn::Lt(keys, hn::Set(tag, threshold.key)));
    if (hn::AllFalse(tag, reached)) return;
    const std::uint64_t above = bits_of(tag, hn::Gt(keys, hn::Set(tag, threshold.key)));
    std::uint64_t bits = bits_of(tag, reached) & ((std::uint64_t{1} << count) - 1);
    for (; bits != 0; bits &= bits - 1) {
      const auto lane = static_cast<std::uint32_t>(__builtin_ctzll(bits));
      if ((above >> lane & 1) == 0) {
        if (threshold.ties == 0) continue;
        --threshold.ties;
      }
      ids[written++] = static_cast<std::uint32_t>(i) + lane;
    }
  });
  return written;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(keep_bracket);
HWY_EXPORT(nth_largest);
HWY_EXPORT(write_ids);

constexpr std::size_t sample_max = 1024;
constexpr std::size_t sampled_from = 256;  // fewer weights are as quickly kept all

/// So many that choosing among them takes about as long as choosing among what a bracket keeps.
std::size_t sample_size(std::size_t n) noexcept {
  const double root = std::cbrt(static_cast<double>(n));
  return std::min(sample_max, static_cast<std::size_t>(root * root));
}

/// Guesses from a sample where the k-th largest key lies: four standard deviations to either side.
Bracket guess_bracket(const float* weights, std::size_t n, std::size_t k) noexcept {
  if (n < sampled_from) return {};
  std::array<Key, sample_max> memory;
  const std::span sample(memory.data(), sample_size(n));
  Rng rng(n);  // fixed places: a strided sample would follow any period of the weights
  for (Key& key : sample) key = key_of(weights[rng.below(n)]);
  const auto key_behind = [&sample](double place) {
    return HWY_DYNAMIC_DISPATCH(nth_largest)(sample.data(), sample.size(),
                                             static_cast<std::size_t>(place) + 1);
  };
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const double place = share * static_cast<double>(sample.size());
  const double slack = 4 * std::sqrt(place * (1 - share)) + 1;
  Bracket bracket;
  if (place + slack < static_cast<double>(sample.size())) bracket.low = key_behind(place + slack);
  if (place > slack) bracket.high = key_behind(place - slack);
  return bracket;
}

/// Finds the k-th largest key, 0 < k < n.
Threshold find_threshold(const float* weights, std::size_t n, std::size_t k, Key* kept) noexcept {
  Bracketed found =
      HWY_DYNAMIC_DISPATCH(keep_bracket)(weights, n, guess_bracket(weights, n, k), kept);
  if (found.above >= k || found.above + found.within < k) {
    found = HWY_DYNAMIC_DISPATCH(keep_bracket)(weights, n, Bracket{}, kept);
  }
  const std::size_t wanted = k - found.above;
  const Key key = HWY_DYNAMIC_DISPATCH(nth_largest)(kept, found.within, wanted);
  const auto larger =
      std::count_if(kept, kept + found.within, [key](Key other) { return other > key; });
  return {.key = key, .ties = wanted - static_cast<std::size_t>(larger)};
}

}  // namespace

std::size_t select_topk(const float* weights, std::size_t n, std::size_t k, std::uint32_t* scratch,
                        std::uint32_t* ids) noexcept {
  if (k == 0 || n == 0) return 0;
  TERRACE_DEBUG_ASSERT(weights != nullptr && ids != nullptr && (scratch != nullptr || k >= n));
  Threshold threshold{.key = lowest_key, .ties = n};
  if (k < n) threshold = find_threshold(weights, n, k, reinterpret_cast<Key*>(scratch));
  return HWY_DYNAMIC_DISPATCH(write_ids)(weights, n, threshold, ids);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
