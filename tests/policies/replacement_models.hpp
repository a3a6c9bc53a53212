// Replacement policies once more, as plainly as their papers put them: lists that are searched from
// end to end. The fuzzer compares the real policies with these.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "terrace/policies/replacement.hpp"

namespace terrace::policies {

class ReplacementModel {
 public:
  using Allowed = std::function<bool(UnitKey)>;

  ReplacementModel() = default;
  ReplacementModel(const ReplacementModel&) = delete;
  ReplacementModel& operator=(const ReplacementModel&) = delete;
  virtual ~ReplacementModel() = default;

  virtual void resize(std::size_t /*slots*/) {}
  virtual void track(UnitKey key, std::uint32_t slots) = 0;
  virtual void touch(std::span<const UnitKey> hits) = 0;
  virtual void miss(std::span<const UnitKey> /*misses*/) {}
  virtual void forget(UnitKey key) = 0;
  virtual std::optional<UnitKey> choose_victim(UnitKey incoming, const Allowed& allowed) = 0;
  virtual void evict(UnitKey key) { forget(key); }
  virtual std::optional<UnitKey> expire() { return std::nullopt; }
};

/// Makes the model of the policy of that name for a cache of `slots` slots; null if there is no
/// such model.
std::unique_ptr<ReplacementModel> make_replacement_model(const std::string& name, std::size_t slots,
                                                         const ReplacementOptions& options);

}  // namespace terrace::policies
