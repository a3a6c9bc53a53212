// `refill`: a block of 128 tokens costs 128 rows a head to bring in, and a step may want only two
// of them. So demand is summed per unit with exponential forgetting,
//   demand <- demand * (1 - 1/horizon) each step, + rows wanted,
// which estimates the rows the unit would save over the next `horizon` steps if demand stays as it
// is. It is admitted when that is at least what its refill moves. State: 16 bytes a unit.
#include "terrace/policies/admission.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace terrace::policies {
namespace {

class Always final : public AdmissionPolicy {
 public:
  void want(UnitKey /*key*/, std::uint32_t /*rows*/) override {}
  [[nodiscard]] double worth(UnitKey /*key*/) const override {
    return std::numeric_limits<double>::infinity();
  }
  void end_step() override {}
  void forget(UnitKey /*key*/) override {}
};

class Refill final : public AdmissionPolicy {
 public:
  explicit Refill(double horizon_steps) : log_keep_(std::log1p(-1.0 / horizon_steps)) {}

  void want(UnitKey key, std::uint32_t rows) override {
    if (key >= demand_.size()) demand_.resize(std::size_t{key} + 1);
    demand_[key] = {.rows = static_cast<float>(worth(key) + rows), .step = step_};
  }

  [[nodiscard]] double worth(UnitKey key) const override {
    if (key >= demand_.size()) return 0;
    const Demand& demand = demand_[key];
    const auto age = static_cast<double>(step_ - demand.step);
    return age == 0 ? demand.rows : demand.rows * std::exp(log_keep_ * age);
  }

  void end_step() override { ++step_; }

  void forget(UnitKey key) override {
    if (key < demand_.size()) demand_[key] = {};
  }

 private:
  struct Demand {
    float rows = 0;
    std::uint64_t step = 0;
  };

  double log_keep_;
  std::uint64_t step_ = 0;
  std::vector<Demand> demand_;
};

}  // namespace

Result<std::unique_ptr<AdmissionPolicy>> make_admission_policy(std::string_view name,
                                                               const AdmissionOptions& options) {
  if (!(options.horizon_steps > 1)) {
    return fail(Errc::invalid_argument, "admission horizon is {} steps; it must be above 1",
                options.horizon_steps);
  }
  if (name == "always") return std::make_unique<Always>();
  if (name == "refill") return std::make_unique<Refill>(options.horizon_steps);
  return fail(Errc::invalid_argument, "cache.admission: unknown '{}'; known are always, refill",
              name);
}

}  // namespace terrace::policies
