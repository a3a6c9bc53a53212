// Numbers of a library's tenants. A number holds as long as the library; the mark of a tenant,
// which stands in the manifests of its chunks, holds as long as the file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "chunk_catalogue.hpp"
#include "terrace/tiers/digest.hpp"

namespace terrace::tiers {

/// Returns the mark of the tenant whose salt has a digest.
[[nodiscard]] inline OwnerMark mark_of(const Digest& digest) noexcept {
  OwnerMark mark = 0;
  for (std::size_t i = 0; i < sizeof mark; ++i) {
    mark |= std::to_integer<OwnerMark>(digest[i]) << (8 * i);
  }
  return std::max<OwnerMark>(mark, 1);  // 0 is the mark of no salt
}

/// Threads  one at a time
class TenantNumbers {
 public:
  /// Returns the number of the tenant with a mark. After 1,023 tenants with a salt, tenants share
  /// the last number.
  TenantId number_of(OwnerMark mark) {
    if (mark == 0) return TenantId{};
    if (mark == of_several) return TenantId{tenants_max - 1};
    const auto next = std::min<std::size_t>(marks_.size(), tenants_max - 1);
    const auto [known, is_new] = numbers_.try_emplace(mark, static_cast<TenantId>(next));
    if (is_new && next == marks_.size())
      marks_.push_back(next < tenants_max - 1 ? mark : of_several);
    return known->second;
  }
  /// Returns 0, too, for a number that number_of() has not given.
  [[nodiscard]] OwnerMark mark_of(TenantId number) const noexcept {
    const auto at = static_cast<std::size_t>(number);
    return at < marks_.size() ? marks_[at] : 0;
  }

 private:
  static constexpr OwnerMark of_several = ~OwnerMark{0};

  std::map<OwnerMark, TenantId> numbers_;
  std::vector<OwnerMark> marks_{0};  ///< by number
};

}  // namespace terrace::tiers
