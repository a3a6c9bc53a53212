// CaM: the last tokens stay, and while tokens are decoded the value of a dropped token is added to
// the values of the tokens after it. A baseline: keys stay unchanged, so no query finds the added
// values.
//
// Source: CaM, ICML 2024. A dropped token's value, divided by m, is added to those of the next m
// tokens that stay. The probability is the token's attention so far over the mean of its own and
// that of the m tokens after it. Values of a prompt's tokens are not added: adding them measured
// the same.
#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "rows.hpp"
#include "scores.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t heirs = 32;  ///< m

/// Returns the probability that the value of the token at `position` is added to later ones;
/// `scores` are of all tokens.
double probability(std::span<const float> scores, std::size_t position) {
  const auto near = scores.subspan(position, std::min(heirs + 1, scores.size() - position));
  const double sum = std::accumulate(near.begin(), near.end(), 0.0);
  if (!(sum > 0)) return 0;
  return std::clamp(static_cast<double>(near[0]) * static_cast<double>(near.size()) / sum, 0.0,
                    1.0);
}

class Cam final : public RetentionPolicy {
 public:
  [[nodiscard]] const RetentionTraits& traits() const noexcept override { return traits_; }

 private:
  [[nodiscard]] std::vector<EntryMap> do_retain(const RetainRequest& request) const override {
    std::vector<EntryMap> maps;
    for (std::size_t head = 0; head < request.heads.size(); ++head) {
      const Candidates& candidates = request.heads[head];
      const std::size_t stay = std::min(candidates.keep, candidates.size());
      const std::size_t dropped = candidates.size() - stay;
      EntryMap& map =
          maps.emplace_back(EntryMap{std::vector<std::uint32_t>(dropped, EntryMap::dropped), stay});
      map.target.resize(candidates.size());
      std::iota(map.target.begin() + static_cast<std::ptrdiff_t>(dropped), map.target.end(), 0U);
      if (request.decoding && stay > 0) hand_on(request, head, dropped, map);
    }
    return maps;
  }

  /// The first `dropped` candidates are dropped; all candidates after them stay.
  static void hand_on(const RetainRequest& request, std::size_t head, std::size_t dropped,
                      EntryMap& map) {
    const std::vector<float> scores = scores_of(request, head);
    const auto count = static_cast<std::uint32_t>(std::min(heirs, map.entries));
    for (std::uint32_t i = 0; i < dropped; ++i) {
      const std::size_t position = request.heads[head].positions[i];
      Rng rng(request.seed, {index(request.layer), head, position});
      if (rng.uniform() >= probability(scores, position)) continue;
      map.gifts.push_back(
          {.candidate = i, .first = 0, .count = count, .factor = 1.0F / static_cast<float>(heirs)});
    }
  }

  RetentionTraits traits_{.name = "cam", .scores = ScoredQueries::all};
};

}  // namespace

MadeRetentionPolicy make_cam(const RetentionOptions& /*options*/) {
  return std::make_unique<Cam>();
}

}  // namespace terrace::policies
