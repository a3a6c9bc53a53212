#include "runtime_state.hpp"

#include <utility>

#include "prefix/saved_index.hpp"

namespace terrace {

RuntimeState::RuntimeState(Parts parts)
    : plan(std::move(parts.plan)),
      backend(std::move(parts.backend)),
      pools{.blocks = std::move(parts.blocks),
            .cached_row_blocks = std::move(parts.cached_row_blocks)},
      host(std::move(parts.host)),
      reclaimer(*backend, pools, *host),
      cluster_threads(std::move(parts.threads)),
      iteration_limits(plan.options.planning),
      prefixes(std::move(parts.prefixes)) {}

Result<std::unique_ptr<RuntimeState>> RuntimeState::create(RuntimeOptions options,
                                                           std::unique_ptr<Backend> backend) {
  TERRACE_ASSIGN(RuntimePlan plan, RuntimePlan::make(std::move(options)));
  if (backend == nullptr) {
    return fail(Errc::invalid_argument, "a runtime needs a backend; offload::make_backend has one");
  }
  TERRACE_ASSIGN(auto blocks, BlockPool::create(*backend, plan.block_bytes()));
  TERRACE_ASSIGN(auto cached_row_blocks, BlockPool::create(*backend, plan.block_bytes()));
  TERRACE_ASSIGN(auto host, HostTier::open(plan, *backend));
  // Near the rows that they cluster.
  TERRACE_ASSIGN(auto threads,
                 offload::make_parallel({.threads = plan.options.host_threads,
                                         .numa_node = backend->capabilities().host_node,
                                         .name = "cluster"}));
  TERRACE_ASSIGN(auto prefixes, open_prefixes(plan, *host));
  std::unique_ptr<RuntimeState> state(
      new RuntimeState({.plan = std::move(plan),
                        .backend = std::move(backend),
                        .blocks = std::move(blocks),
                        .cached_row_blocks = std::move(cached_row_blocks),
                        .host = std::move(host),
                        .threads = std::move(threads),
                        .prefixes = std::move(prefixes)}));
  if (const std::string& file = state->plan.options.counters_file; !file.empty()) {
    TERRACE_ASSIGN(state->counter_file, CounterFile::open(file, state->backend->clock(),
                                                          [&] { return state->gauges(); }));
  }
  return state;
}

RuntimeGauges RuntimeState::gauges() const {
  return {.device = backend->memory(Tier::device),
          .host = backend->memory(Tier::host),
          .prefixes = prefixes == nullptr ? PrefixCounters{} : prefixes->counters()};
}

void RuntimeState::publish_counters() const {
  if (counter_file != nullptr) counter_file->write_if_due([&] { return gauges(); });
}

Result<std::unique_ptr<PrefixLibrary>> RuntimeState::open_prefixes(const RuntimePlan& plan,
                                                                   const HostTier& host) {
  if (host.chunks() == nullptr || plan.retains() || plan.options.prefixes.model.empty()) {
    return nullptr;
  }
  return PrefixLibrary::open(plan.options, index_identity(plan), host.chunks());
}

void RuntimeState::set_limit(Tier tier, std::size_t bytes) noexcept {
  backend->set_limit(tier, bytes);
  host->follow_limit();
}

}  // namespace terrace
