#include "terrace/engine/cost_measurement.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "arithmetic.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/drain_to_end.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/kernels/isa.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace::engine {
namespace {

using policies::KmeansSample;
using policies::TimeSample;

constexpr std::array<std::size_t, 5> prompt_lengths{512, 768, 1024, 1536, 2048};
// No length is shorter than a segment or than the unit of rounding: such times say nothing about
// longer lengths.
constexpr std::array<std::size_t, 4> cluster_lengths{2048, 4096, 8192, 16384};
constexpr std::array<std::size_t, 2> cluster_iterations{3, 9};
constexpr int repeats = 3;

/// Returns the shortest of some runs: what disturbs a run only makes it longer.
template <typename Work>
Result<double> shortest_seconds(const Clock& clock, Work work) {
  double shortest = std::numeric_limits<double>::max();
  for (int i = 0; i < repeats; ++i) {
    const TimePoint begin = clock.now();
    TERRACE_TRY(work());
    shortest = std::min(shortest, seconds(clock.now() - begin));
  }
  return shortest;
}

/// Rows of made-up values, in blocks.
struct SampleRows {
  std::vector<std::byte> memory;
  std::vector<std::byte*> blocks;
  std::size_t block_tokens;

  SampleRows(const KvShape& shape, std::size_t tokens, std::size_t block)
      : memory(divide_up(tokens, block) * block * shape.token_bytes()), block_tokens(block) {
    Rng rng(0);
    for (std::size_t i = 0; i < memory.size() / size_bytes(shape.dtype); ++i) {
      store_f32(memory.data(), shape.dtype, i, static_cast<float>(rng.uniform() - 0.5));
    }
    for (std::size_t at = 0; at < memory.size(); at += block * shape.token_bytes()) {
      blocks.push_back(memory.data() + at);
    }
  }
  [[nodiscard]] BlockTable table() const { return {blocks.data(), block_tokens}; }
};

/// The queue that is measured, and how long each wait for it may take.
struct MeasuredQueue {
  Backend& backend;
  Queue& queue;
  Duration deadline;

  [[nodiscard]] Status drain() const { return queue.drain(deadline); }
  [[nodiscard]] Status copy(Phase phase, const CopyExtent& extent) const {
    TERRACE_ASSIGN(const Ticket copied, queue.copy(phase, {&extent, 1}));
    return wait(copied, deadline);
  }
};

/// Waits for work that a measurement abandoned, because the work's memory must outlive it.
struct AtRest {
  const MeasuredQueue& measured;
  ~AtRest() { drain_to_end(measured.queue, measured.deadline); }
};

/// Exact attention of a prompt's tokens in a layer to each other, as a step enqueues it.
class PromptAttention {
 public:
  /// `arithmetic` has begun these tokens.
  static Result<PromptAttention> create(Arithmetic& arithmetic, const MeasuredQueue& measured,
                                        const KvShape& shape, std::size_t tokens) {
    PromptAttention made;
    Backend& backend = measured.backend;
    const std::size_t state_bytes = tile_state_floats(shape, tokens) * sizeof(float);
    TERRACE_ASSIGN(made.state_, backend.allocate({.bytes = state_bytes}));
    TERRACE_ASSIGN(made.block_, backend.allocate({.bytes = sizeof(std::byte*)}));
    TERRACE_ASSIGN(const Buffer source,
                   backend.allocate({.bytes = sizeof(std::byte*), .tier = Tier::host}));
    // Rows that are projected lie as in a block of so many tokens.
    const std::byte* const rows = arithmetic.rows().keys;
    std::memcpy(source.data(), static_cast<const void*>(&rows), sizeof(rows));
    TERRACE_TRY(measured.copy(Phase::update, {made.block_.data(), source.data(), sizeof(rows)}));
    const std::size_t numbers = shape.query_heads * shape.head_dim;
    made.tile_ = {.shape = shape,
                  .query = arithmetic.query(),
                  .query_stride = numbers,
                  .tokens = tokens,
                  .rows = {.blocks = made.block_.as<std::byte*>(), .block_tokens = tokens},
                  .row_count = tokens,
                  .seen = 1,
                  .state = made.state_.as<float>(),
                  .first = true,
                  .output = arithmetic.attention(),
                  .output_stride = numbers,
                  .scale = shape.logit_scale()};
    return made;
  }

  Status enqueue(const MeasuredQueue& measured) const {
    const Ops& ops = measured.backend.ops();
    return ops.tile_attention(measured.queue, Phase::attend, tile_).map([](Ticket) {});
  }

 private:
  Buffer state_;
  Buffer block_;  ///< a table of one block
  TileAttention tile_;
};

Result<double> layer_seconds(const LlamaModel& model, const KvShape& shape,
                             const MeasuredQueue& measured, std::size_t tokens) {
  TERRACE_ASSIGN(const auto arithmetic,
                 make_arithmetic(model, measured.backend, measured.queue,
                                 {.kv_dtype = shape.dtype, .deadline = measured.deadline}));
  PromptAttention attention;
  const AtRest at_rest{measured};
  const std::vector<TokenId> prompt(tokens);
  TERRACE_TRY(arithmetic->begin({.tokens = prompt}));
  TERRACE_ASSIGN(attention, PromptAttention::create(*arithmetic, measured, shape, tokens));
  return shortest_seconds(measured.backend.clock(), [&]() -> Status {
    TERRACE_TRY(arithmetic->project(0));
    TERRACE_TRY(attention.enqueue(measured));
    TERRACE_TRY(arithmetic->finish(0));
    return measured.drain();
  });
}

/// A layer's rows where a prompt leaves them, and where they go.
struct OffloadedRows {
  Buffer device;
  Buffer host;

  static Result<OffloadedRows> create(Backend& backend, std::size_t bytes) {
    OffloadedRows rows;
    TERRACE_ASSIGN(rows.device, backend.allocate({.bytes = bytes, .tier = Tier::device}));
    TERRACE_ASSIGN(rows.host, backend.allocate({.bytes = bytes, .tier = Tier::host}));
    // Pages that were never written would be read faster than others.
    std::memset(rows.host.data(), 1, bytes);
    return rows;
  }
};

Result<double> offload_seconds(const OffloadedRows& rows, const MeasuredQueue& measured,
                               std::size_t bytes) {
  TERRACE_TRY(measured.copy(Phase::index, {rows.device.data(), rows.host.data(), bytes}));
  return shortest_seconds(measured.backend.clock(), [&]() -> Status {
    return measured.copy(Phase::offload, {rows.host.data(), rows.device.data(), bytes});
  });
}

Result<double> cluster_seconds(const RetrievalPolicy& policy, const RuntimeOptions& options,
                               Parallel& threads, const Clock& clock, const KmeansSample& sample) {
  const auto tokens = static_cast<std::size_t>(sample.tokens);
  const SampleRows rows(options.shape, tokens, options.block_tokens);
  TERRACE_ASSIGN(const IndexLayout layout, policy.index_layout(options.shape));
  const std::size_t chunk_count = divide_up(tokens, layout.chunk_tokens);
  std::vector<std::byte> fixed(layout.fixed_bytes);
  std::vector<std::byte> memory(chunk_count * layout.chunk_bytes);
  std::vector<std::byte*> chunks(chunk_count);
  for (std::size_t i = 0; i < chunk_count; ++i) chunks[i] = memory.data() + i * layout.chunk_bytes;
  const BuildRequest request{
      .shape = options.shape,
      .rows = rows.table(),
      .tokens = {0, tokens},
      .fixed = fixed.data(),
      .index = {.chunks = chunks.data(), .chunk_tokens = layout.chunk_tokens},
      .iterations = static_cast<std::size_t>(sample.iterations)};
  return shortest_seconds(clock, [&]() -> Status {
    return policy.build(request, threads).map([](const BuildReport&) {});
  });
}

}  // namespace

Result<policies::CostModel> measure_costs(const LlamaModel& model, const RuntimeOptions& options,
                                          Backend& backend) {
  TERRACE_ASSIGN(const auto policy,
                 policies::make_retrieval_policy(options.policy, options.retrieval));
  if (!policy->traits().clusters) {
    return fail(Errc::unsupported, "policy {} does not cluster", options.policy);
  }
  TERRACE_ASSIGN(const auto host_threads,
                 offload::make_parallel({.threads = options.host_threads}));
  const std::size_t token_bytes = options.shape.token_bytes();
  // Declared before the queue, whose destructor waits for abandoned copies.
  TERRACE_ASSIGN(const OffloadedRows rows,
                 OffloadedRows::create(backend, prompt_lengths.back() * token_bytes));
  TERRACE_ASSIGN(const auto queue, backend.make_queue({.name = "measure"}));
  const MeasuredQueue measured{backend, *queue, options.deadline};
  std::vector<TimeSample> compute;
  std::vector<TimeSample> offload;
  for (const std::size_t tokens : prompt_lengths) {
    const auto n = static_cast<double>(tokens);
    TERRACE_ASSIGN(const double layer, layer_seconds(model, options.shape, measured, tokens));
    compute.push_back({n, layer});
    TERRACE_ASSIGN(const double copy, offload_seconds(rows, measured, tokens * token_bytes));
    offload.push_back({n, copy});
  }
  std::vector<KmeansSample> clusterings;
  for (const std::size_t tokens : cluster_lengths) {
    for (const std::size_t iterations : cluster_iterations) {
      KmeansSample sample{static_cast<double>(tokens), static_cast<double>(iterations), 0};
      TERRACE_ASSIGN(sample.seconds,
                     cluster_seconds(*policy, options, *host_threads, backend.clock(), sample));
      clusterings.push_back(sample);
    }
  }
  policies::CostModel costs;
  TERRACE_ASSIGN(costs.compute, policies::fit_time(compute, 2));
  TERRACE_ASSIGN(costs.offload, policies::fit_time(offload, 1));
  costs.residuals = {.compute = policies::residual(compute, costs.compute),
                     .offload = policies::residual(offload, costs.offload)};
  TERRACE_TRY(policies::fit_kmeans(clusterings, costs));
  return costs;
}

std::string cost_setting(const ModelConfig& model, const RuntimeOptions& options,
                         const RetrievalTraits& policy, Backend& backend) {
  return fmt::format(
      "{}, {}; layers of {} and {}, {} query heads on {} KV heads of {}, {}; "
      "{} device and {} host threads; {}",
      policy.name, policy.clustering, model.hidden_size, model.intermediate_size, model.query_heads,
      model.kv_heads, model.head_dim, to_string(options.shape.dtype),
      backend.device_threads().concurrency(), options.host_threads, kernels::host::isa_in_use());
}

}  // namespace terrace::engine
