// A batch of calls gives the bits that its calls give one after the other, of any lengths, and of
// more calls than a device takes at once.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention_scenario.hpp"
#include "kernels/cached_scenario.hpp"
#include "kernels/cluster_scene.hpp"
#include "kernels/conversion.hpp"
#include "kernels/page_scene.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/refine_scene.hpp"
#include "kernels/rests_scene.hpp"
#include "kernels/selected.hpp"
#include "kernels/sign_index.hpp"
#include "kernels/tile_scenario.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::Guarded;
using testing::make_shape;
using testing::run;

using Memory = std::span<std::byte>;

template <typename Array>
Memory memory_of(Array& array) {
  return std::as_writable_bytes(std::span(array.data(), array.size()));
}

std::vector<std::byte> contents(const std::vector<Memory>& memory) {
  std::vector<std::byte> bytes;
  for (const Memory& each : memory) bytes.insert(bytes.end(), each.begin(), each.end());
  return bytes;
}

void restore(const std::vector<Memory>& memory, const std::vector<std::byte>& bytes) {
  auto next = bytes.begin();
  for (const Memory& each : memory) {
    std::copy_n(next, each.size(), each.begin());
    next += static_cast<std::ptrdiff_t>(each.size());
  }
}

/// Runs a batch and returns the bytes that cross the link.
template <typename Arguments>
std::size_t bytes_of_run(std::span<const Arguments> batch) {
  if constexpr (std::is_void_v<decltype(run(batch))>) {
    run(batch);
    return 0;
  } else {
    return run(batch);
  }
}

/// Numbers of calls: some, and more than one launch takes.
template <typename Arguments>
constexpr std::array<std::size_t, 4> batch_sizes{
    1, 2, 7, kernels::cuda::calls_per_launch(sizeof(Arguments)) + 3};

/// A call, what holds its memory, what of it the call writes for good, and what it works in.
template <typename Arguments>
struct Call {
  std::shared_ptr<void> holder;
  Arguments op;
  std::vector<Memory> written;
  Memory scratch = {};
};

/// When a batch of more calls than one launch takes is tried: how calls are dealt out over launches
/// most ops have in common.
enum class Large : std::uint8_t { always, where_there_is_time };

/// Makes calls by make(i), runs them alone and together on the same memory, and compares.
template <typename Arguments, typename Make>
void expect_batches_like_calls(Large large, Make make) {
  for (const std::size_t size : batch_sizes<Arguments>) {
    const bool is_large = size == batch_sizes<Arguments>.back();
    if (is_large && large != Large::always && !testing::takes_shape(1)) continue;
    SCOPED_TRACE(std::to_string(size) + " calls, " + testing::seed_text());
    std::vector<std::shared_ptr<void>> holders;
    std::vector<Arguments> ops;
    std::vector<Memory> written;
    std::vector<Memory> scratch;
    for (std::size_t i = 0; i < size; ++i) {
      Call<Arguments> call = make(i);
      holders.push_back(std::move(call.holder));
      ops.push_back(call.op);
      written.insert(written.end(), call.written.begin(), call.written.end());
      scratch.push_back(call.scratch);
    }
    // Scratch memory is never clean, and holds nothing of another run.
    const auto scribble = [&] {
      for (const Memory& each : scratch) std::ranges::fill(each, std::byte{0xff});
    };
    scribble();
    const std::vector<std::byte> before = contents(written);
    std::size_t bytes = 0;
    for (const Arguments& op : ops) bytes += bytes_of_run(std::span(&op, 1));
    const std::vector<std::byte> alone = contents(written);
    restore(written, before);
    scribble();
    EXPECT_EQ(bytes_of_run(std::span<const Arguments>(ops)), bytes);
    EXPECT_TRUE(contents(written) == alone);
    EXPECT_TRUE(before != alone || size == 1) << "nothing was written";
  }
}

/// Calls from here on are small: a device on the CPU takes long for each.
constexpr std::size_t small_from = 7;

/// Something of call `i` that differs between neighbours.
template <typename T, std::size_t count>
T one_of(const T (&values)[count], std::size_t i) {
  return values[i % count];
}

struct Stored {
  Stored(const KvShape& shape, std::size_t block_tokens, TokenRange tokens)
      : keys(tokens.size() * shape.token_bytes() / 2),
        values(keys.size()),
        target(shape, block_tokens, tokens.end + 1) {
    Rng rng(testing::seed(), {91, tokens.end});
    for (auto* const half : {&keys, &values}) {
      for (std::byte& x : *half) x = static_cast<std::byte>(rng.below(256));
    }
  }
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
  BlockStore target;
};

TEST(Batch, StoresRowsLikeItsCalls) {
  const KvShape shape = make_shape(1, 2, 6, Dtype::f16);
  expect_batches_like_calls<StoreRows>(Large::always, [&](std::size_t i) {
    const std::size_t begin = i % 5;
    const TokenRange tokens{
        begin, begin + (i < small_from ? one_of<std::size_t>({1, 1, 30, 0, 1, 250, 9}, i) : 1)};
    const std::size_t block_tokens = one_of<std::size_t>({3, 16}, i);
    const auto stored = std::make_shared<Stored>(shape, block_tokens, tokens);
    Call<StoreRows> call{stored,
                         {.source = {.keys = stored->keys.data(),
                                     .values = stored->values.data(),
                                     .token_stride = shape.token_bytes() / 2,
                                     .head_stride = shape.row_bytes() / 2},
                          .tokens = tokens,
                          .target = stored->target.table(),
                          .shape = shape,
                          .crosses_link = i % 3 == 0},
                         {}};
    for (std::byte* const block : stored->target.blocks()) {
      call.written.emplace_back(block, block_tokens * shape.token_bytes());
    }
    return call;
  });
}

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};

/// How many candidates selections by row have, and how many are wanted.
std::size_t candidates_of(std::size_t i) {
  return i < small_from ? one_of<std::size_t>({300, 1, 0, 2500, 64, 700}, i) : i % 40;
}
constexpr std::size_t wanted_counts[] = {20, 1, 5, 64, 0};

template <typename Index>
struct SelectedBy {
  SelectedBy(Index by, const KvShape& shape, TokenRange candidates, std::size_t count)
      : index(std::move(by)), selected(shape, candidates, count) {}
  Index index;
  testing::Selected selected;
  [[nodiscard]] std::vector<Memory> written() {
    return {memory_of(selected.ids_), memory_of(selected.counts_)};
  }
};

TEST(Batch, SelectsByCodesLikeItsCalls) {
  const KvShape shape = make_shape(2, 1, 16, Dtype::f16);
  const PqShape pq{.subspaces = 2, .bits = 4};
  expect_batches_like_calls<PqSelect>(Large::always, [&](std::size_t i) {
    const std::size_t begin = 3 + i % 4;
    const TokenRange candidates{begin, begin + candidates_of(i)};
    const auto held = std::make_shared<SelectedBy<testing::PqIndex>>(
        testing::PqIndex(shape, pq, 100 + i % 3, candidates.end, 3), shape, candidates,
        one_of(wanted_counts, i));
    held->index.fill_codes();
    return Call<PqSelect>{held,
                          {.common = held->selected.common(one_of(reductions, i)),
                           .pq = pq,
                           .index = held->index.view()},
                          held->written(),
                          memory_of(held->selected.scratch_)};
  });
}

TEST(Batch, SelectsByKeysLikeItsCalls) {
  const KvShape shape = make_shape(5, 1, 16, Dtype::bf16);
  expect_batches_like_calls<ExactSelect>(Large::where_there_is_time, [&](std::size_t i) {
    const std::size_t begin = 3 + i % 4;
    const TokenRange candidates{begin, begin + candidates_of(i)};
    BlockStore store(shape, 16, candidates.end);
    store.fill_normal(i);
    const auto held = std::make_shared<SelectedBy<testing::KeyIndex>>(
        testing::KeyIndex(store, 64, {3, candidates.end}), shape, candidates,
        one_of(wanted_counts, i));
    return Call<ExactSelect>{
        held,
        {.common = held->selected.common(one_of(reductions, i)), .index = held->index.view()},
        held->written(),
        memory_of(held->selected.scratch_)};
  });
}

TEST(Batch, SelectsByChannelsLikeItsCalls) {
  const KvShape shape = make_shape(5, 1, 16, Dtype::f16);
  for (const bool partial : {false, true}) {
    const ChannelShape channels{.count = 6, .partial = partial};
    expect_batches_like_calls<ChannelSelect>(Large::where_there_is_time, [&](std::size_t i) {
      const std::size_t begin = 3 + i % 4;
      const TokenRange candidates{begin, begin + candidates_of(i)};
      BlockStore store(shape, 16, candidates.end);
      store.fill_normal(i);
      const auto held = std::make_shared<SelectedBy<testing::ChannelIndex>>(
          testing::ChannelIndex(store, channels, 64, {3, candidates.end}), shape, candidates,
          one_of(wanted_counts, i));
      return Call<ChannelSelect>{held,
                                 {.common = held->selected.common(one_of(reductions, i)),
                                  .channels = channels,
                                  .index = held->index.view()},
                                 held->written(),
                                 memory_of(held->selected.scratch_)};
    });
  }
}

TEST(Batch, SelectsBySignsLikeItsCalls) {
  const KvShape shape = make_shape(5, 1, 16, Dtype::f16);
  expect_batches_like_calls<SignSelect>(Large::where_there_is_time, [&](std::size_t i) {
    const std::size_t begin = 3 + i % 4;
    const TokenRange candidates{begin, begin + candidates_of(i)};
    BlockStore store(shape, 16, candidates.end);
    store.fill_normal(i);
    const auto held = std::make_shared<SelectedBy<testing::SignIndex>>(
        testing::SignIndex(store, 4, 64, 128, {3, candidates.end}), shape, candidates,
        one_of(wanted_counts, i));
    return Call<SignSelect>{held,
                            {.common = held->selected.common(one_of(reductions, i)),
                             .signs = held->index.signs(),
                             .index = held->index.view()},
                            held->written(),
                            memory_of(held->selected.scratch_)};
  });
}

struct Mapped {
  explicit Mapped(const KvShape& shape, std::size_t stream)
      : queries(shape.query_heads * shape.head_dim),
        maps(shape.kv_heads * shape.head_dim * shape.head_dim),
        mapped(queries.size()) {
    Rng rng(testing::seed(), {92, stream});
    for (float& x : queries) x = testing::normal(rng);
    for (float& x : maps) x = testing::normal(rng);
  }
  std::vector<float> queries;
  std::vector<float> maps;
  Guarded<float> mapped;
};

TEST(Batch, MapsQueriesLikeItsCalls) {
  const KvShape shape = make_shape(2, 2, 10, Dtype::f16);
  expect_batches_like_calls<MapQueries>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = std::make_shared<Mapped>(shape, i);
    return Call<MapQueries>{held,
                            {.shape = shape,
                             .query = held->queries.data(),
                             .maps = held->maps.data(),
                             .mapped = held->mapped.data()},
                            {memory_of(held->mapped)}};
  });
}

TEST(Batch, ConvertsQueriesLikeItsCalls) {
  constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
  expect_batches_like_calls<ConvertQueries>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = std::make_shared<testing::Conversion>(testing::ConversionCase{
        .shape = make_shape(2, 2, 10, Dtype::f16),
        .from = one_of(dtypes, i / 3),
        .to = one_of(dtypes, i),
        .tokens = i < small_from ? one_of<std::size_t>({3, 0, 1, 900}, i) : 1 + i % 3,
        .source_gap = i % 4,
        .target_gap = i % 5});
    held->fill(i);
    return Call<ConvertQueries>{held, held->op(), {memory_of(held->target())}};
  });
}

TEST(Batch, SelectsPagesLikeItsCalls) {
  namespace scene = testing::page_scene;
  const KvShape shape = make_shape(5, 1, 16, Dtype::f16);
  const PageShape pages{.page_tokens = 4, .bounds = true};
  expect_batches_like_calls<PageSelect>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = std::make_shared<scene::Scene>(shape, pages);
    PageSelect& op = held->op;
    op.common.count.mean = one_of<std::size_t>({20, 100, 0}, i);
    op.common.candidates.begin += i % 6;
    op.common.candidates.end -= i < small_from ? one_of<std::size_t>({200, 0, 100, 233}, i) : 210;
    op.common.reduction = one_of(reductions, i);
    return Call<PageSelect>{
        held, op, {memory_of(held->ids), memory_of(held->counts)}, memory_of(held->scratch)};
  });
}

TEST(Batch, RefinesLikeItsCalls) {
  namespace scene = testing::refine_scene;
  const KvShape shape = make_shape(3, 2, 24, Dtype::f16);
  expect_batches_like_calls<RefineSelect>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = std::make_shared<scene::Scene>(shape, 2, PqShape{}, i);
    RefineSelect& op = held->op;
    op.common.count.mean = one_of<std::size_t>({20, 100, 0}, i);
    op.common.reduction = one_of(reductions, i);
    held->propose(i < small_from ? 1 + i % 5 : 50);
    op.proposed_count = held->proposed_counts.data();
    return Call<RefineSelect>{
        held, op, {memory_of(held->ids), memory_of(held->counts)}, memory_of(held->scratch)};
  });
}

TEST(Batch, AttendsToRestsLikeItsCalls) {
  namespace scene = testing::rests_scene;
  const KvShape shape = make_shape(3, 2, 24, Dtype::f16);
  expect_batches_like_calls<DecodeAttention>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = std::make_shared<scene::Scene>(shape, i);
    DecodeAttention& op = held->op;
    op.rests.most = one_of<std::size_t>({45, 5, 0}, i);
    held->select(i < small_from ? 2 + i % 5 : 50);
    if (i % 4 == 3) op.rests = {};  // a batch may have both
    return Call<DecodeAttention>{held,
                                 op,
                                 {memory_of(held->output), memory_of(held->pseudo_counts)},
                                 memory_of(held->scratch)};
  });
}

TEST(Batch, SelectsClustersLikeItsCalls) {
  namespace scene = testing::cluster_scene;
  // Room for more clusters than a device scores at once, but in the shortest index.
  static constexpr ClusterShape clusters{.chunk_tokens = 40, .slots = 20, .estimates = true};
  struct Held {
    explicit Held(std::size_t tokens)
        : store(scene::shape, clusters, scene::first, tokens, 50),
          scene(store, scene::shape, clusters) {}
    testing::ClusterStore store;
    scene::Scene scene;
  };
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    expect_batches_like_calls<ClusterSelect>(Large::where_there_is_time, [&](std::size_t i) {
      const std::size_t tokens = scene::tokens - one_of<std::size_t>({0, 250, 80}, i);
      const auto held = std::make_shared<Held>(tokens);
      if (i % 2 == 0) {
        held->scene.attend_to(held->store);
        held->scene.op.window = {tokens - scene::window_tokens, tokens};
      }
      if (scope == ListScope::kv_head && i % 3 != 0) held->scene.estimate(i % 20);
      ClusterSelect& op = held->scene.op;
      op.scope = scope;
      op.common.candidates.end = tokens - scene::window_tokens;
      op.common.count.mean = one_of<std::size_t>({100, 10, 0}, i);
      op.mass_wanted = i % 4 == 0 ? 0.5 : 0;
      return Call<ClusterSelect>{
          held,
          op,
          {memory_of(held->scene.ids), memory_of(held->scene.counts),
           memory_of(held->scene.pseudo_bias), memory_of(held->scene.pseudo_rows),
           memory_of(held->scene.pseudo_counts)},
          memory_of(held->scene.scratch)};
    });
  }
}

/// A scenario with a finished selection.
std::shared_ptr<testing::CachedScenario> selected_scenario(ListScope scope, std::size_t i) {
  auto held = std::make_shared<testing::CachedScenario>(
      scope, 8, i < small_from ? one_of<std::size_t>({60, 1, 300}, i) : 1 + i % 9);
  held->select(i);
  return held;
}

TEST(Batch, ResolvesRowsLikeItsCalls) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    // Misses of heads come in any order: the rest of the memory says which there are.
    expect_batches_like_calls<ResolveRows>(Large::where_there_is_time, [&](std::size_t i) {
      const auto held = selected_scenario(scope, i);
      if (i % 4 == 1) held->epoch_[0] = 0xffffff00U;
      return Call<ResolveRows>{held,
                               held->request(),
                               {memory_of(held->rows_), memory_of(held->missed_count_),
                                memory_of(held->seen_), memory_of(held->epoch_)}};
    });
  }
}

TEST(Batch, ResolvesTheMissesOfEachCall) {
  std::vector<std::shared_ptr<testing::CachedScenario>> scenarios;
  std::vector<ResolveRows> resolves;
  std::vector<FetchRows> fetches;
  for (std::size_t i = 0; i < 9; ++i) {
    scenarios.push_back(selected_scenario(ListScope::query_head, i));
    resolves.push_back(scenarios.back()->request());
    fetches.push_back(scenarios.back()->fetch_request());
  }
  run(std::span<const ResolveRows>(resolves));
  const std::size_t bytes = run(std::span<const FetchRows>(fetches));
  std::size_t misses = 0;
  for (const auto& each : scenarios) {
    EXPECT_EQ(each->expect_right_rows(), each->misses());
    each->expect_order();
    misses += each->misses();
  }
  EXPECT_EQ(bytes, misses * scenarios[0]->shape_.row_bytes());
}

TEST(Batch, FetchesRowsLikeItsCalls) {
  expect_batches_like_calls<FetchRows>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = selected_scenario(ListScope::kv_head, i);
    held->resolve();
    if (i % 5 == 4) held->missed_count_[0] = 0;
    return Call<FetchRows>{held, held->fetch_request(), {memory_of(held->staging_)}};
  });
}

TEST(Batch, CachesRowsLikeItsCalls) {
  expect_batches_like_calls<CacheRows>(Large::where_there_is_time, [&](std::size_t i) {
    const auto held = selected_scenario(ListScope::kv_head, i);
    std::vector<CachedRowChange> changes = testing::some_rows();
    changes.resize(one_of<std::size_t>({200, 0, 7}, i));
    for (std::size_t k = i % 3; k < changes.size(); k += 3) changes[k].staged = 1;
    for (std::size_t k = i % 5; k < changes.size(); k += 5) changes[k].number = 0;
    return Call<CacheRows>{
        held, held->change_request(changes), {memory_of(held->numbers_), memory_of(held->memory_)}};
  });
}

TEST(Batch, AttendsLikeItsCalls) {
  struct Held {
    explicit Held(const testing::AttentionCase& options)
        : scenario(options), output(scenario.query_.size(), std::nanf("")) {}
    testing::AttentionScenario scenario;
    Guarded<float> output;
  };
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    expect_batches_like_calls<DecodeAttention>(Large::where_there_is_time, [&](std::size_t i) {
      const auto held = std::make_shared<Held>(testing::AttentionCase{
          .shape = make_shape(3, 2, 16, Dtype::f16),
          .sinks = i % 5,
          .window = i < small_from ? one_of<std::size_t>({9, 600, 0, 1}, i) : i % 8,
          .selected = one_of<std::size_t>({40, 0, 3}, i),
          .pseudo = one_of<std::size_t>({0, 17}, i),
          .scope = scope,
          .biased = i % 2 == 1});
      const DecodeAttention op = held->scenario.op(held->output.data());
      return Call<DecodeAttention>{
          held, op, {memory_of(held->output)}, memory_of(held->scenario.scratch_)};
    });
  }
}

TEST(Batch, GivesWeightsOfAttentionLikeItsCalls) {
  struct Held {
    Held(const testing::AttentionCase& options, ListScope scope)
        : scenario(options),
          output(scenario.query_.size(), std::nanf("")),
          sums(list_count(options.shape, scope) * scenario.weights_stride(), std::nanf("")) {}
    testing::AttentionScenario scenario;
    Guarded<float> output;
    Guarded<float> sums;
  };
  expect_batches_like_calls<DecodeAttention>(Large::where_there_is_time, [&](std::size_t i) {
    const ListScope scope = i % 2 == 0 ? ListScope::kv_head : ListScope::query_head;
    const auto held = std::make_shared<Held>(
        testing::AttentionCase{.shape = make_shape(3, 2, 16, Dtype::f16),
                               .window = i < small_from ? one_of<std::size_t>({9, 600, 0}, i) : 3,
                               .selected = one_of<std::size_t>({40, 0, 3, 0}, i)},
        scope);
    DecodeAttention op = held->scenario.op(held->output.data(), scope, held->sums.data());
    if (i % 5 == 3) op.weights = {};  // not wanted
    return Call<DecodeAttention>{held,
                                 op,
                                 {memory_of(held->output), memory_of(held->sums)},
                                 memory_of(held->scenario.weights_scratch_)};
  });
}

TEST(Batch, AttendsToTilesLikeItsCalls) {
  for (const std::size_t group : {1U, 3U}) {
    expect_batches_like_calls<TileAttention>(Large::where_there_is_time, [&](std::size_t i) {
      const auto held = std::make_shared<testing::TileScenario>(
          testing::TileCase{.shape = make_shape(group, 2, 16, Dtype::f16),
                            .rows = one_of<std::size_t>({9, 600, 0, 1}, i),
                            .tokens = one_of<std::size_t>({1, 5, 2}, i),
                            .seen = one_of<std::ptrdiff_t>({1000, 0, 500, -1}, i)});
      TileAttention op = held->op();
      if (i % 5 == 3) {  // in the middle of tiles
        Rng rng(testing::seed(), {93, i});
        for (float& x : held->state_.span()) x = std::abs(testing::normal(rng));
        op.first = false;
        op.output = nullptr;
      }
      return Call<TileAttention>{held, op, {memory_of(held->state_), memory_of(held->output_)}};
    });
  }
}

TEST(Batch, WeighsTilesLikeItsCalls) {
  struct Held {
    explicit Held(const testing::TileCase& options)
        : scenario(options), sums(options.shape.query_heads * options.rows, 0.5F) {}
    testing::TileScenario scenario;
    Guarded<float> sums;
  };
  expect_batches_like_calls<TileWeights>(Large::where_there_is_time, [&](std::size_t i) {
    const testing::TileCase options{.shape = make_shape(3, 2, 16, Dtype::f16),
                                    .rows = one_of<std::size_t>({9, 600, 0, 1}, i),
                                    .tokens = one_of<std::size_t>({2, 5, 1}, i),
                                    .seen = one_of<std::ptrdiff_t>({1000, 0, 500}, i)};
    const auto held = std::make_shared<Held>(options);
    static_cast<void>(held->scenario.run());
    const ListScope scope = i % 2 == 0 ? ListScope::kv_head : ListScope::query_head;
    return Call<TileWeights>{
        held,
        {.tile = held->scenario.op(),
         .weights = {.scope = scope, .sums = held->sums.data(), .stride = options.rows}},
        {memory_of(held->sums)}};
  });
}

}  // namespace
}  // namespace terrace
