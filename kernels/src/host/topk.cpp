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

/// Writes the chosen lanes one after the other, then any values up to a whole vector, and returns
/// how many were chosen. Highway's CompressStore writes nothing after them, by an instruction that
/// takes CPUs far longer.
template <typename Tag, typename Mask>
HWY_INLINE std::size_t store_chosen(Tag tag, hn::Vec<Tag> all, Mask chosen, hn::TFromD<Tag>* to) {
  hn::StoreU(hn::Compress(all, chosen), tag, to);
  return hn::CountTrue(tag, chosen);
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
      result.within += store_chosen(tag, keys, within, kept + result.within);
      return;
    }
    const auto there = hn::And(within, hn::FirstN(tag, count));
    result.within += hn::CompressBlendedStore(keys, there, tag, kept + result.within);
  });
  return result;
}

/// The keys from `at` on; lanes after the last are lowest.
HWY_INLINE Keys load_keys(const Key* keys, std::size_t at, std::size_t n) {
  const KeyTag tag;
  if (at + lanes <= n) return hn::LoadU(tag, keys + at);
  alignas(64) Key rest[lanes];
  for (std::size_t j = 0; j < lanes; ++j) rest[j] = at + j < n ? keys[at + j] : lowest_key;
  return hn::Load(tag, rest);
}

/// The least and the largest of some keys, 0 < n.
HWY_INLINE Bracket range_of(const Key* keys, std::size_t n) {
  const KeyTag tag;
  Keys least = hn::Set(tag, keys[0]);
  Keys most = least;
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const Keys some = hn::LoadU(tag, keys + i);
    least = hn::Min(least, some);
    most = hn::Max(most, some);
  }
  Bracket range{hn::GetLane(hn::MinOfLanes(tag, least)), hn::GetLane(hn::MaxOfLanes(tag, most))};
  for (; i < n; ++i) range = {HWY_MIN(range.low, keys[i]), HWY_MAX(range.high, keys[i])};
  return range;
}

/// Returns how many keys are at least `key`, which is not the lowest.
HWY_INLINE std::size_t count_from(const Key* keys, std::size_t n, Key key) {
  const KeyTag tag;
  const Keys below = hn::Set(tag, key - 1);
  Keys counts = hn::Zero(tag);
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto reached = hn::Gt(load_keys(keys, i, n), below);
    counts = hn::Sub(counts, hn::VecFromMask(tag, reached));
  }
  return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(tag, counts)));
}

/// The key in the middle of a range, above its low end.
HWY_INLINE Key middle_of(Bracket range) {
  const std::int64_t low = range.low;
  return static_cast<Key>(low + (std::int64_t{range.high} - low + 1) / 2);
}

/// Returns a key that at least `least` keys reach, and, if such a key exists, at most `most`; 0 <
/// least <= n.
Key key_reached_by(const Key* keys, std::size_t n, std::size_t least, std::size_t most) {
  Bracket range = range_of(keys, n);
  std::size_t reached = n;
  while (range.low < range.high && reached > most) {
    const Key middle = middle_of(range);
    const std::size_t count = count_from(keys, n, middle);
    if (count < least) {
      range.high = middle - 1;
      continue;
    }
    range.low = middle;
    reached = count;
  }
  return range.low;
}

/// Moves the keys that reach `key`, or those that do not, to the front.
HWY_INLINE void keep_half(Key* keys, std::size_t n, Key key, bool upper) {
  const KeyTag tag;
  const Keys least = hn::Set(tag, key);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n; i += lanes) {
    const Keys some = load_keys(keys, i, n);
    const auto below = hn::Lt(some, least);
    const auto wanted = upper ? hn::Not(below) : below;
    if (i + lanes <= n) {
      kept += store_chosen(tag, some, wanted, keys + kept);  // not beyond what has been read
      continue;
    }
    const auto there = hn::And(wanted, hn::FirstN(tag, n - i));
    hn::CompressBlendedStore(some, there, tag, keys + kept);
  }
}

/// Finds the `place`-th largest key, 0 < place <= n. The search halves the range of the key and
/// drops the keys outside it.
Threshold nth_largest(Key* keys, std::size_t n, std::size_t place) {
  Bracket range = range_of(keys, n);
  while (range.low < range.high && n > 1) {
    const Key middle = middle_of(range);
    const std::size_t count = count_from(keys, n, middle);
    const bool upper = count >= place;
    if (upper) {
      range.low = middle;
    } else {
      range.high = middle - 1;
      place -= count;
    }
    const std::size_t left = upper ? count : n - count;
    if (left < n) keep_half(keys, n, middle, upper);
    n = left;
  }
  return {.key = n == 1 ? keys[0] : range.low, .ties = place};
}

/// Writes the indices of keys above a threshold and of the first ties with it: `wanted` in all.
std::size_t write_ids(const float* weights, std::size_t n, Threshold threshold, std::size_t wanted,
                      std::uint32_t* ids) {
  const KeyTag tag;
  const hn::RebindToUnsigned<KeyTag> id_tag;
  const Keys key = hn::Set(tag, threshold.key);
  const auto first = hn::Iota(id_tag, 0);
  std::size_t written = 0;
  for_each_keys(weights, n, [&](std::size_t i, Keys keys, std::size_t count) HWY_ATTR {
    auto chosen = hn::Gt(keys, key);
    const auto tied = hn::Eq(keys, key);
    if (!hn::AllFalse(tag, tied)) {
      // Few vectors have a tie.
      std::uint64_t bits = bits_of(tag, chosen);
      std::uint64_t ties = bits_of(tag, tied) & ((std::uint64_t{1} << count) - 1);
      for (; ties != 0 && threshold.ties > 0; ties &= ties - 1, --threshold.ties) {
        bits |= ties & -ties;
      }
      chosen = hn::LoadMaskBits(tag, reinterpret_cast<const std::uint8_t*>(&bits));
    }
    const auto numbers = hn::Add(first, hn::Set(id_tag, static_cast<std::uint32_t>(i)));
    const auto chosen_ids = hn::RebindMask(id_tag, chosen);
    if (written + lanes <= wanted) {
      written += store_chosen(id_tag, numbers, chosen_ids, ids + written);
    } else {
      written += hn::CompressBlendedStore(numbers, chosen_ids, id_tag, ids + written);
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
HWY_EXPORT(key_reached_by);
HWY_EXPORT(nth_largest);
HWY_EXPORT(write_ids);

constexpr std::size_t sample_max = 1024;
constexpr std::size_t sampled_from = 256;  // fewer weights are as quickly kept all

/// Returns a size for which choosing in the sample takes about as long as choosing in the bracket.
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
  const double share = static_cast<double>(k) / static_cast<double>(n);
  const double place = share * static_cast<double>(sample.size());
  const double slack = 4 * std::sqrt(place * (1 - share)) + 1;
  const auto key_at = [&sample, slack](double at) {
    const auto least = static_cast<std::size_t>(at) + 1;
    return HWY_DYNAMIC_DISPATCH(key_reached_by)(sample.data(), sample.size(), least,
                                                least + static_cast<std::size_t>(slack / 8));
  };
  Bracket bracket;
  if (place + slack < static_cast<double>(sample.size())) bracket.low = key_at(place + slack);
  if (place > slack) bracket.high = key_at(place - slack);
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
  return HWY_DYNAMIC_DISPATCH(nth_largest)(kept, found.within, wanted);
}

}  // namespace

std::size_t select_topk(const float* weights, std::size_t n, std::size_t k, std::uint32_t* scratch,
                        std::uint32_t* ids) noexcept {
  if (k == 0 || n == 0) return 0;
  TERRACE_DEBUG_ASSERT(weights != nullptr && ids != nullptr && (scratch != nullptr || k >= n));
  Threshold threshold{.key = lowest_key, .ties = n};
  if (k < n) threshold = find_threshold(weights, n, k, reinterpret_cast<Key*>(scratch));
  return HWY_DYNAMIC_DISPATCH(write_ids)(weights, n, threshold, std::min(k, n), ids);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
