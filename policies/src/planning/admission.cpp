// `refill`: a block of 128 tokens costs 128 rows a head to bring in, and a step may want only two
// of them. Therefore demand is summed per unit with exponential forgetting,
//   demand <- demand * (1 - 1/horizon) each step, + rows wanted,
// which estimates the rows the unit would save over the next `horizon` steps if demand does not
// change. The unit is admitted when that is at least what its refill moves. An estimate may be
// wrong. Therefore refills are paid for: only rows that hits have saved may be spent,
//   rows refilled <= rows hit                   at any time,
// and what a step fetches and refills together never sums up to more than it would fetch without a
// cache. The first hits are of units that were in device memory anyway when they became units of
// the cache (ResidentCache::adopt), which costs nothing. State: 16 bytes a unit.
#include "terrace/policies/admission.hpp"

#include <limits>
#include <vector>

namespace terrace::policies {
namespace {

class Always final : public AdmissionPolicy {
 public:
  void resize(std::size_t /*key_count*/) override {}
  void want(UnitKey /*key*/, std::uint32_t /*rows*/, bool /*resident*/) override {}
  [[nodiscard]] double worth(UnitKey /*key*/) const override {
    return std::numeric_limits<double>::infinity();
  }
  bool pay(std::uint32_t /*refill_rows*/) override { return true; }
  void give_back(std::uint32_t /*refill_rows*/) override {}
  void end_step() override {}
  void forget(UnitKey /*key*/) override {}
  [[nodiscard]] std::size_t state_bytes() const noexcept override { return 0; }
};

class Refill final : public AdmissionPolicy {
 public:
  explicit Refill(double horizon_steps) : kept_(ages) {
    // By multiplication, not by exp(): the same on every machine.
    const double keep = 1 - 1 / horizon_steps;
    double kept = 1;
    for (double& each : kept_) {
      each = kept;
      kept *= keep;
    }
  }

  void resize(std::size_t key_count) override {
    if (key_count > demand_.size()) demand_.resize(key_count);
  }

  void want(UnitKey key, std::uint32_t rows, bool resident) override {
    demand_[key] = {.rows = static_cast<float>(worth(key) + rows), .step = step_};
    if (resident) saved_rows_ += rows;
  }

  [[nodiscard]] double worth(UnitKey key) const override {
    const Demand& demand = demand_[key];
    const std::uint64_t age = step_ - demand.step;
    return age < ages ? demand.rows * kept_[age] : 0;
  }

  bool pay(std::uint32_t refill_rows) override {
    if (refill_rows > saved_rows_) return false;
    saved_rows_ -= refill_rows;
    return true;
  }

  void give_back(std::uint32_t refill_rows) override { saved_rows_ += refill_rows; }

  void end_step() override { ++step_; }

  void forget(UnitKey key) override { demand_[key] = {}; }

  [[nodiscard]] std::size_t state_bytes() const noexcept override {
    return kept_.capacity() * sizeof(double) + demand_.capacity() * sizeof(Demand);
  }

 private:
  struct Demand {
    float rows = 0;
    std::uint64_t step = 0;
  };

  static constexpr std::size_t ages = 4096;  ///< older demand counts as 0

  std::vector<double> kept_;  ///< what is left of demand, by its age
  std::uint64_t step_ = 0;
  std::uint64_t saved_rows_ = 0;  ///< by hits, and not yet spent on refills
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
