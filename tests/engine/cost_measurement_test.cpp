// The conditions of the planner's measurements.
#include "terrace/engine/cost_measurement.hpp"

#include <gmock/gmock.h>

#include "doubles/fault_backend.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::engine {
namespace {

TEST(CostMeasurement, OffloadsRowsThatLieInDeviceMemory) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const RuntimeOptions options{.shape = tiny.config().kv_shape(Dtype::f16), .policy = "pqcache"};
  const auto backend =
      offload::HostBackend::create({.device_memory_limit = std::size_t{256} << 10}).value();
  const auto costs = measure_costs(tiny, options, *backend);
  ASSERT_FALSE(costs.has_value()) << "less device memory than a layer's rows was enough";
  EXPECT_EQ(costs.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(costs.error().message()), testing::HasSubstr("device.memory"));
}

TEST(CostMeasurement, TakesTheAttentionOfALayer) {
  const LlamaModel tiny = LlamaModel::load(TERRACE_TINY_MODEL).value();
  const RuntimeOptions options{.shape = tiny.config().kv_shape(Dtype::f16), .policy = "pqcache"};
  const auto backend = doubles::FaultBackend::wrap(offload::HostBackend::create({}).value());
  backend->arm({.pieces = {{.phase = Phase::attend, .nth = 1}}});
  EXPECT_FALSE(measure_costs(tiny, options, *backend).has_value());
  EXPECT_EQ(backend->counters().pieces_failed, 1U);
}

}  // namespace
}  // namespace terrace::engine
