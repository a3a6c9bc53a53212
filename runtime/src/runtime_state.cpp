#include "runtime_state.hpp"

#include <algorithm>
#include <limits>

#include "prefix/remote_tier.hpp"
#include "prefix/saved_index.hpp"
#include "sequence/sequence_state.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/offload/tier_store.hpp"

namespace terrace {
namespace {

/// Errors: unsupported, invalid_argument, where options ask of a policy what it cannot do.
Status check_policy(const RuntimeOptions& options, const RetrievalTraits& traits,
                    const IndexLayout& layout) {
  // A policy that selects nothing has nothing to stop or to cache.
  if (!traits.selects) return {};
  const bool clusters = options.cache.granularity == CacheGranularity::cluster;
  if (options.budget.kind == TokenBudget::Kind::mass && !traits.stops_at_mass) {
    return fail(Errc::unsupported,
                "policy {} cannot stop at a share of attention mass; set retrieval.policy to wave "
                "and retrieval.refine to off, or retrieval.budget to a share or a number of tokens",
                traits.name);
  }
  if (layout.empty()) {
    return fail(Errc::invalid_argument,
                "policy {} selects, and its index has no chunks to select from", traits.name);
  }
  if (clusters && layout.chunk_clusters == 0) {
    return fail(Errc::unsupported,
                "policy {} has no clusters to cache; set cache.granularity to block", traits.name);
  }
  return {};
}

Status check_dropping(const RetentionTraits& retention, const RetrievalTraits& retrieval) {
  if (!retrieval.selects && !retrieval.keeps_everything) return {};
  return fail(Errc::unsupported,
              "retention.policy {} drops tokens that retrieval.policy {} would attend to; set "
              "retrieval.policy to streaming, or retention.dropped to keep",
              retention.name, retrieval.name);
}

Status check_holding(const RetentionTraits& retention, const RetrievalTraits& retrieval) {
  if (!retrieval.leaves_out_held) {
    return fail(Errc::unsupported,
                "retention.dropped is keep, and retrieval.policy {} cannot select beside entries "
                "that are held{}; use pqcache, qpq, oracle, sparq or infinigen, and set "
                "retrieval.estimate_tokens to 0",
                retrieval.name,
                retrieval.estimates_rest ? ", and would estimate these a second time" : "");
  }
  if (!retention.merges && retention.scores != ScoredQueries::all) return {};
  return fail(Errc::unsupported,
              "retention.dropped is keep, and retention.policy {} {}; use recent, snapkv, "
              "pyramidkv or smartkv, and set retention.merge to 0",
              retention.name,
              retention.merges ? "makes entries of several tokens"
                               : "needs the weights of tokens that are not attended to");
}

}  // namespace

RuntimeState::RuntimeState(RuntimeOptions chosen, std::unique_ptr<Backend> device,
                           Policies policies, IndexLayout layout)
    : options(std::move(chosen)),
      backend(std::move(device)),
      policy(std::move(policies.retrieval)),
      retention(std::move(policies.retention)),
      index_layout(layout),
      planner_(options.planning.costs, options.planning.limits) {}

Result<RuntimeState::Policies> RuntimeState::make_policies(const RuntimeOptions& options) {
  Policies policies{.retrieval = options.own_policy, .retention = options.own_retention};
  if (policies.retrieval == nullptr) {
    TERRACE_ASSIGN(policies.retrieval,
                   policies::make_retrieval_policy(options.policy, options.retrieval));
  }
  if (policies.retention == nullptr && options.retention_policy != "none") {
    TERRACE_ASSIGN(policies.retention,
                   policies::make_retention_policy(options.retention_policy, options.retention));
  }
  if (policies.retention != nullptr) {
    const auto check = options.dropped == DroppedTokens::keep ? check_holding : check_dropping;
    TERRACE_TRY(check(policies.retention->traits(), policies.retrieval->traits()));
  }
  return policies;
}

Result<std::shared_ptr<tiers::ChunkLibrary>> RuntimeState::open_store(RuntimeOptions& options) {
  RowsBelowHost& below = options.below_host;
  tiers::ChunkLibraryOptions library{
      .store = below.store, .deadline = options.deadline, .seed = options.seed};
  TERRACE_ASSIGN(library.remote, open_remote_tier(options));
  if (below.store != nullptr) {
    if (options.prefixes.model.empty()) return nullptr;
    return tiers::ChunkLibrary::share(library);
  }
  if (below.file.empty()) return nullptr;
  const auto opened = tiers::ChunkLibrary::open_file(
      {.path = below.file,
       .bytes = below.file_bytes,
       .page_bytes = options.block_tokens * options.shape.token_bytes()},
      library);
  if (!opened) return tl::unexpected(opened.error().while_doing("tier.nvme"));
  below.store = (*opened)->store();
  // Other runtimes of the process may have the same file.
  static std::atomic<std::uint64_t> runtimes{0};
  below.owner = runtimes.fetch_add(1, std::memory_order_relaxed);
  return opened;
}

std::function<bool(std::uint64_t bytes)> RuntimeState::room_maker(
    const RowsBelowHost& below, const std::shared_ptr<tiers::ChunkLibrary>& chunks) {
  return [store = below.store.get(), chunks](std::uint64_t bytes) {
    // Another runtime may keep chunks in the store.
    const auto library = chunks != nullptr ? chunks : tiers::ChunkLibrary::of(*store);
    return library != nullptr && library->make_room(bytes) > 0;
  };
}

Result<std::unique_ptr<RuntimeState>> RuntimeState::create(RuntimeOptions options,
                                                           std::unique_ptr<Backend> backend) {
  TERRACE_TRY(options.validate());
  if (backend == nullptr) {
    return fail(Errc::invalid_argument, "a runtime needs a backend; offload::make_backend has one");
  }
  TERRACE_ASSIGN(Policies policies, make_policies(options));
  TERRACE_ASSIGN(const IndexLayout layout, policies.retrieval->index_layout(options.shape));
  TERRACE_TRY(check_policy(options, policies.retrieval->traits(), layout));
  std::shared_ptr<tiers::ChunkLibrary> chunks;
  if (!policies.retrieval->traits().keeps_everything) {
    TERRACE_ASSIGN(chunks, open_store(options));
  }
  // Near the rows that they cluster.
  TERRACE_ASSIGN(auto threads,
                 offload::make_parallel({.threads = options.host_threads,
                                         .numa_node = backend->capabilities().host_node,
                                         .name = "cluster"}));
  std::unique_ptr<RuntimeState> state(
      new RuntimeState(std::move(options), std::move(backend), std::move(policies), layout));
  state->cluster_threads_ = std::move(threads);
  for (auto* pool : {&state->blocks_, &state->cluster_blocks_}) {
    TERRACE_ASSIGN(auto blocks,
                   offload::SlotPool::create(*state->backend,
                                             {.slot_bytes = state->block_bytes(),
                                              .slab_bytes = slab_blocks * state->block_bytes(),
                                              .purpose = Purpose::kv}));
    *pool = std::make_unique<offload::SlotPool>(std::move(blocks));
  }
  TERRACE_ASSIGN(state->pages_, offload::HostPagePool::create(
                                    *state->backend, {.page_bytes = state->block_bytes()}));
  TERRACE_TRY(state->open_tiers(std::move(chunks)));
  // Names are checked now, not at the first prompt.
  if (!state->options.cache.none()) TERRACE_TRY(make_resident_cache(state->options.cache, 1, 1));
  return state;
}

Status RuntimeState::open_tiers(std::shared_ptr<tiers::ChunkLibrary> chunks) {
  chunks_ = std::move(chunks);
  if (const RowsBelowHost& below = options.below_host; below.store != nullptr) {
    mover_ = std::make_unique<offload::PageMover>(
        *pages_, offload::PageMoverOptions{.store = below.store,
                                           .owner = below.owner,
                                           .deadline = options.deadline,
                                           .make_room = room_maker(below, chunks_)});
  }
  limit_pages();
  if (mover_ == nullptr || chunks_ == nullptr || retention != nullptr ||
      options.prefixes.model.empty()) {
    return {};
  }
  TERRACE_ASSIGN(prefixes_, PrefixLibrary::open(options, index_identity(*this), chunks_));
  return {};
}

void RuntimeState::limit_pages() noexcept {
  // Regions seldom come back, and indexes and buffers need memory, too.
  if (mover_ != nullptr) pages_->set_bytes_max(backend->memory(Tier::host).limit / 4 * 3);
}

void RuntimeState::set_limit(Tier tier, std::size_t bytes) noexcept {
  backend->set_limit(tier, bytes);
  limit_pages();
}

std::size_t RuntimeState::most_kept(std::size_t mean) const noexcept {
  std::size_t most = 0;
  const std::size_t heads = retention == nullptr ? 0 : shape().layers * shape().kv_heads;
  for (std::size_t i = 0; i < heads; ++i) {
    most = std::max(most, retention->keep_of({.shape = shape(),
                                              .layer = static_cast<LayerId>(i / shape().kv_heads),
                                              .head = static_cast<HeadId>(i % shape().kv_heads),
                                              .mean = mean,
                                              .tokens = std::numeric_limits<std::size_t>::max()}));
  }
  return most;
}

std::vector<std::size_t> RuntimeState::entry_rooms(LayerId layer,
                                                   const policies::BudgetSplit& split,
                                                   std::size_t tokens) const {
  const std::size_t outside = split.sinks + split.window;
  std::vector<std::size_t> rooms;
  rooms.reserve(shape().kv_heads);
  for (std::size_t head = 0; head < shape().kv_heads; ++head) {
    rooms.push_back(retention->keep_of({.shape = shape(),
                                        .layer = layer,
                                        .head = static_cast<HeadId>(head),
                                        .mean = split.kept,
                                        .tokens = tokens - std::min(tokens, outside)}));
  }
  return rooms;
}

Result<std::byte*> RuntimeState::take_spare_block() {
  const std::lock_guard lock(pool_mutex_);
  return blocks_->allocate();
}

Result<std::byte*> RuntimeState::take_cluster_block() {
  const std::lock_guard lock(pool_mutex_);
  return cluster_blocks_->allocate();
}

void RuntimeState::reserve_cluster_blocks(std::size_t count) {
  // Slab by slab: a caller that needs a block meanwhile does not wait for all slabs.
  const auto add_slab = [&] {
    const std::lock_guard lock(pool_mutex_);
    return cluster_blocks_->reserve_more(count);
  };
  while (add_slab()) continue;
}

bool RuntimeState::release_step_memory() {
  const std::lock_guard lock(pool_mutex_);
  const bool any = !step_memory_.empty();
  step_memory_.clear();
  return any;
}

bool RuntimeState::trim_pools() {
  const bool any = release_step_memory();
  const std::lock_guard lock(pool_mutex_);
  return blocks_->trim() + cluster_blocks_->trim() > 0 || any;
}

std::unique_ptr<StepMemory> RuntimeState::lend_step_memory() {
  const std::lock_guard lock(pool_mutex_);
  if (step_memory_.empty()) return std::make_unique<StepMemory>();
  std::unique_ptr<StepMemory> memory = std::move(step_memory_.back());
  step_memory_.pop_back();
  return memory;
}

void RuntimeState::take_back(std::unique_ptr<StepMemory> memory) noexcept {
  const std::lock_guard lock(pool_mutex_);
  step_memory_.push_back(std::move(memory));
}

Result<std::byte*> RuntimeState::take_block(SequenceState& requester) {
  std::byte* block = nullptr;
  const auto take = [&]() -> Status {
    TERRACE_ASSIGN(block, take_spare_block());
    return {};
  };
  const Status taken = reclaimer.make_room(requester, take);
  if (taken) return block;
  return tl::unexpected(taken.error().while_doing("rows that are attended to"));
}

std::size_t RuntimeState::block_pool_bytes() {
  const std::lock_guard lock(pool_mutex_);
  return blocks_->reserved_bytes() + cluster_blocks_->reserved_bytes();
}

void RuntimeState::give_block(std::byte* block) {
  const std::lock_guard lock(pool_mutex_);
  blocks_->release(block);
}

void RuntimeState::give_cluster_block(std::byte* block) {
  const std::lock_guard lock(pool_mutex_);
  cluster_blocks_->release(block);
}

Result<BuildReport> RuntimeState::build(const BuildRequest& request) {
  const std::lock_guard lock(cluster_mutex_);
  return policy->build(request, *cluster_threads_);
}

Status RuntimeState::rate(const RateRequest& request) {
  const std::lock_guard lock(cluster_mutex_);
  return retention->rate(request, *cluster_threads_);
}

std::size_t RuntimeState::planned_iterations(std::size_t layer,
                                             const policies::HiddenClustering& clustering,
                                             Duration late) {
  const std::vector<std::size_t>& fixed = options.planning.iterations;
  if (!fixed.empty()) return fixed[std::min(layer, fixed.size() - 1)];
  const std::lock_guard lock(planner_mutex_);
  const auto sent = static_cast<double>(clustering.prompt.size());
  return planner_.plan(clustering, planner_.model().offload(sent) + seconds(late));
}

void RuntimeState::observe_clustering(std::size_t rows, double iterations, Duration time) {
  const std::lock_guard lock(planner_mutex_);
  planner_.observe_clustering(rows, iterations, seconds(time));
}

void RuntimeState::observe_compute(const policies::HiddenClustering& clustering, Duration time) {
  const std::lock_guard lock(planner_mutex_);
  planner_.observe_compute(clustering, seconds(time));
}

Status RuntimeState::check_compute(Queue& queue) const {
  if (&queue.threads() == &backend->device_threads()) return {};
  return fail(Errc::invalid_argument,
              "queue {} is not one of this runtime's device; make it with Runtime::backend()",
              queue.name());
}

Status RuntimeState::check_countable(std::size_t tokens) const {
  if (tokens > max_positions) {
    return fail(Errc::invalid_argument, "{} tokens; a sequence may have {}", tokens, max_positions);
  }
  // More than a number of a query takes anywhere: as a row, in an index, in what steps work in.
  Result<std::size_t> bytes = 256;
  for (const std::size_t factor : {tokens, shape().layers, shape().query_heads, shape().head_dim}) {
    bytes = checked_multiply(*bytes, factor);
    if (bytes) continue;
    return fail(Errc::invalid_argument,
                "{} tokens of this model take more bytes than 64 bits count", tokens);
  }
  return {};
}

}  // namespace terrace
