// Seeded randomness. Every stream is named by the run's seed and a few numbers (layer, head, ...),
// so that results do not depend on the order in which streams are used.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace terrace {

/// SplitMix64: small, seedable by anything, equal on every platform.
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014 (the
/// published constants).
class Rng {
 public:
  using result_type = std::uint64_t;

  explicit Rng(std::uint64_t seed) noexcept : state_(seed) {}

  /// Makes the stream named by `seed` and `name`.
  Rng(std::uint64_t seed, std::initializer_list<std::uint64_t> name) noexcept : state_(seed) {
    for (const std::uint64_t part : name) state_ = (*this)() ^ (part * 0xd6e8feb86659fd93ULL);
  }

  static constexpr std::uint64_t min() noexcept { return 0; }
  static constexpr std::uint64_t max() noexcept { return ~std::uint64_t{0}; }

  std::uint64_t operator()() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
    return mixed ^ (mixed >> 31);
  }

  /// Returns a number in [0, bound), bound > 0, without bias worth naming (below 2^-32 for
  /// bounds below 2^32).
  std::uint64_t below(std::uint64_t bound) noexcept {
    return static_cast<std::uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64);
  }

  /// Returns a double in [0, 1).
  double uniform() noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

 private:
  __extension__ using Wide = unsigned __int128;

  std::uint64_t state_;
};

}  // namespace terrace
