#include "terrace/runtime/runtime.hpp"

#include "need/device_need.hpp"
#include "need/host_need.hpp"
#include "need/need_terms.hpp"
#include "prefix_adopter.hpp"
#include "sequence/runtime_state.hpp"
#include "sequence_state.hpp"
#include "step/step_state.hpp"

namespace terrace {

Runtime::Runtime(std::shared_ptr<RuntimeState> state) : state_(std::move(state)) {}
Runtime::~Runtime() { state_->close(); }

Result<std::unique_ptr<Runtime>> Runtime::open(RuntimeOptions options,
                                               std::unique_ptr<Backend> backend) {
  TERRACE_ASSIGN(auto state, RuntimeState::create(std::move(options), std::move(backend)));
  return std::unique_ptr<Runtime>(new Runtime(std::move(state)));
}

Result<std::unique_ptr<Sequence>> Runtime::open_sequence() {
  TERRACE_ASSIGN(auto state, SequenceState::create(state_));
  return std::unique_ptr<Sequence>(new Sequence(std::move(state)));
}

Result<std::unique_ptr<Sequence>> Runtime::open_sequence(const PrefixQuery& query) {
  if (state_->prefixes != nullptr) {
    const Status fits = state_->prefixes->check(query);
    if (!fits) return tl::unexpected(fits.error().while_doing("open_sequence"));
  }
  TERRACE_ASSIGN(auto state, SequenceState::create(state_));
  if (state_->prefixes != nullptr) {
    Status adopted;
    {
      const std::lock_guard lock(state->mutex);
      adopted = adopt_prefix(*state, *state_->prefixes, query);
    }
    const bool missed = !adopted && adopted.error().code != Errc::out_of_memory;
    if (missed) return open_sequence();
    if (!adopted) return tl::unexpected(adopted.error().while_doing("open_sequence"));
  }
  return std::unique_ptr<Sequence>(new Sequence(std::move(state)));
}

PrefixCounters Runtime::prefix_counters() const {
  const PrefixLibrary* const prefixes = state_->prefixes.get();
  return prefixes == nullptr ? PrefixCounters{} : prefixes->counters();
}

Result<std::unique_ptr<Step>> Runtime::begin_step(std::span<const StepMember> members,
                                                  Queue& compute, const StepOptions& options) {
  TERRACE_TRY(check_compute(*state_->backend, compute));
  std::unique_ptr<Step> step(new Step(std::make_unique<Step::State>(state_, compute, options)));
  TERRACE_TRY(step->begin_next(members));
  return step;
}

Backend& Runtime::backend() noexcept { return *state_->backend; }
const RuntimeOptions& Runtime::options() const noexcept { return state_->plan.options; }
bool Runtime::has_store_below_host() const noexcept { return state_->host->has_store(); }
const RetrievalTraits& Runtime::traits() const noexcept { return state_->plan.traits(); }
const RetentionTraits* Runtime::retention_traits() const noexcept {
  const RuntimePlan& plan = state_->plan;
  return plan.retains() ? &plan.retention->traits() : nullptr;
}

Result<MemoryNeed> Runtime::memory_need(const NeedQuery& query) const {
  TERRACE_TRY(check_need(state_->plan, query));
  NeedQuery asked = query;
  if (asked.cache_sharers == 0) asked.cache_sharers = state_->cache_sharers.count() + 1;
  const NeedTerms terms(state_->plan, asked, state_->backend->memory(Tier::device).limit);
  const DeviceNeed device(terms);
  const HostNeed host(terms);
  return MemoryNeed{.device_held = device.held(),
                    .device_cache = device.cache(),
                    .device_step = device.step(),
                    .device_shared = device.shared(),
                    .host_rows = host.rows(),
                    .host_index = host.index(),
                    .host_rest = host.rest(),
                    .index_bytes = terms.sparse_layers() * terms.index_bytes(terms.chunks())};
}

Status Runtime::set_limit(Tier tier, std::size_t bytes) {
  if (tier != Tier::device && tier != Tier::host) {
    return fail(Errc::invalid_argument, "tier {} has no limit; set device's or host's",
                to_string(tier));
  }
  state_->set_limit(tier, bytes);
  return state_->reclaimer.shrink(tier);
}

void Runtime::release_step_memory() { static_cast<void>(state_->pools.steps.release()); }
std::size_t Runtime::block_pool_bytes() const { return state_->pools.reserved_bytes(); }

}  // namespace terrace
