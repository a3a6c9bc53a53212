// Which of the caches that were tried is recommended, and which are as good (decision 0067).
#include <algorithm>

#include "terrace/tuning/tuner.hpp"

namespace terrace::tuning {
namespace {

/// The longest time of what ties with the best.
double most_seconds(const TuneResult& result) {
  double least = result.without_cache.outcome.seconds;
  for (const TunedRow& row : result.rows) {
    if (!row.offline) least = std::min(least, row.outcome.seconds);
  }
  return (1 + tie_share) * least;
}

bool ties(const TunedRow& row, double most) { return !row.offline && row.outcome.seconds <= most; }

/// Whether `a` is preferred if both tie: by the place of its policy in the table, then by the bytes
/// that it moves.
bool preferred(const TunedRow& a, const TunedRow& b) {
  const auto all = policies::replacement_policies();
  const auto place = [&all](const TunedRow& row) {
    return std::ranges::find(all, row.cache.policy, &policies::ReplacementEntry::name) -
           all.begin();
  };
  if (place(a) != place(b)) return place(a) < place(b);
  return a.moved_bytes() < b.moved_bytes();
}

}  // namespace

bool TuneResult::tied_with_best(const TunedRow& row) const {
  return ties(row, most_seconds(*this));
}

const TunedRow& TuneResult::recommended() const {
  const double most = most_seconds(*this);
  if (ties(without_cache, most)) return without_cache;
  const TunedRow* simplest = &rows.front();
  for (const TunedRow& row : rows) {
    if (ties(row, most) && preferred(row, *simplest)) simplest = &row;
  }
  return *simplest;
}

std::vector<std::string> TuneResult::tied_policies() const {
  const double most = most_seconds(*this);
  const std::string& taken = recommended().cache.policy;
  std::vector<std::string> names;
  for (const TunedRow& row : rows) {
    const bool told = row.cache.policy == taken || std::ranges::count(names, row.cache.policy) != 0;
    if (ties(row, most) && !told) names.push_back(row.cache.policy);
  }
  return names;
}

std::string describe_tie(const TuneResult& result) {
  const std::vector<std::string> others = result.tied_policies();
  if (others.empty()) return {};
  std::string names;
  for (const std::string& name : others) {
    names += names.empty() ? "" : &name == &others.back() ? " and " : ", ";
    names += name;
  }
  return fmt::format(
      "{} {} with it within {:.0f} %. Among choices that tie, the simplest is recommended: no "
      "cache, or else the policy that --help lists first.",
      names, others.size() == 1 ? "ties" : "tie", 100 * tie_share);
}

}  // namespace terrace::tuning
