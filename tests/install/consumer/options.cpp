// One field of each option struct, designated: the others keep their defaults without a word from
// the compiler, which takes warnings for errors here.
#include "terrace/core/store.hpp"
#include "terrace/offload/cuda/wrap_queue.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/offload/slot_pool.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/runtime/runtime.hpp"

namespace {

/// Takes a struct by value, as calls of Terrace do.
template <typename... Options>
std::size_t count(const Options&... /*options*/) {
  return sizeof...(Options);
}

std::size_t of_core() {
  using namespace terrace;
  return count(KvShape{.layers = 1}, KvTensors{.token_stride = 1}, TokenRange{.end = 1},
               TokenBudget{.value = 1}, AllocationRequest{.bytes = 1},
               QueueOptions{.high_priority = true}, QueueOptions{.name = "compute"},
               CopyExtent{.bytes = 1}, PqShape{.bits = 4}, PromptHints{.query_window = {}},
               RetrievalTraits{.name = "own"}, RetrievalTraits{.selects = true},
               IndexLayout{.chunk_tokens = 1}, PageRequest{.key = {}});
}

std::size_t of_offload() {
  using namespace terrace::offload;
  return count(BackendOptions{.host = {.device_threads = 2}}, BackendOptions{.cuda = {.device = 1}},
               LinkOptions{.latency = {}}, LinkOptions{.bandwidth_bytes_per_second = 1},
               CallerQueueOptions{.name = "own"}, ParallelOptions{.threads = 2},
               HostMemoryOptions{.huge_pages = HugePages::on}, HostPageOptions{.page_bytes = 1},
               SlotPoolOptions{.slot_bytes = 1});
}

std::size_t of_runtime() {
  using namespace terrace;
  return count(RuntimeOptions{.policy = "quest"}, RuntimeOptions{.shape = {.layers = 1}},
               RuntimeOptions{.seed = 1}, RuntimeOptions{.retrieval = {.pq = {.bits = 4}}},
               RuntimeOptions{.retrieval = {.wave = {.segment_tokens = 256}}},
               RuntimeOptions{.cache = {.policy = "none"}}, CacheOptions{.tokens = 1},
               CacheOptions{.replacement = {.last_steps = 2}},
               CacheOptions{.refill = {.horizon_steps = 2}}, RefreshOptions{.tokens = 256},
               PlanningOptions{.iterations = {4}}, PlanningOptions{.costs = {.compute = {}}},
               PlanningOptions{.limits = {.margin = 0}}, ConfigInputs{.file = "terrace.yaml"},
               EnvironmentVariable{.name = "TERRACE_CACHE_POLICY"}, StepMember{.tokens = 2},
               StepTensors{.query = nullptr});
}

}  // namespace

/// Returns how many structs there are, so that all of them are used.
std::size_t count_options() { return of_core() + of_offload() + of_runtime(); }
