// InfiniGen: candidates by a guess at the query, and by some channels of keys that stay chosen.
//   build:  per KV head the channels, a share `ratio` of them, where keys and the queries of the
//           prompt's end are largest: mean |k| over the tokens + mean |q| over these queries, ties
//           to the lower channel; rows with a NaN or infinity take no part
//   extend: the same channels of new keys
//   select: as sparq does, with these channels and the speculated query: what the model projects
//           from the layer before's input, with this layer's norm, weights and positions
// Index: keys' channels, ratio / 2 of the KV bytes. Deterministic. Extending changes no channels.
// Source: InfiniGen (Lee et al., OSDI 2024). In the paper queries and keys are first rotated to the
// axes of the queries (skewing), which RoPE does not commute with; a threshold of scores (alpha)
// decides how many rows are fetched, here the budget does; and only the chosen channels are
// projected.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "head_keys.hpp"
#include "row_mean.hpp"
#include "rows.hpp"
#include "selection_args.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t infinigen_chunk_tokens = 64;
constexpr std::size_t infinigen_query_window = 256;

/// The mean of |x| over rows of a KV head, element by element.
class MeanSize {
 public:
  explicit MeanSize(std::size_t dims) : mean_(dims) {}
  void add(std::span<const float> rows) {
    sizes_.resize(rows.size());
    std::ranges::transform(rows, sizes_.begin(), [](float x) { return std::abs(x); });
    mean_.add(sizes_);
  }
  [[nodiscard]] double of(std::size_t i) const noexcept { return mean_.of(i); }

 private:
  RowMean mean_;
  std::vector<float> sizes_;
};

class InfiniGen final : public RetrievalPolicy {
 public:
  explicit InfiniGen(const RetrievalOptions& options)
      : ratio_(options.infinigen.ratio), reduction_(options.reduction) {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override {
    static const RetrievalTraits traits{.name = "infinigen",
                                        .needs_speculated_query = true,
                                        .query_window_tokens = infinigen_query_window,
                                        .leaves_out_held = true};
    return traits;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    const std::size_t count = shape.kv_heads * channels_of(shape).count;
    return IndexLayout{.fixed_bytes = count * sizeof(std::uint32_t),
                       .chunk_tokens = infinigen_chunk_tokens,
                       .chunk_bytes = count * infinigen_chunk_tokens * size_bytes(shape.dtype)};
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return selection_scratch_floats(shape, candidates);
  }

  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return request.shape.kv_heads;
  }

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t head) const override {
    // An index made anew has no queries at hand: it keeps the channels of the first one.
    const bool keeps = request.extends() || (request.anew && request.hints.query_window.empty());
    if (!keeps) TERRACE_TRY(choose_channels(request, head));
    IndexView index = request.index;
    index.fixed = request.fixed;
    TERRACE_TRY(kernels::host::key_channels({.shape = request.shape,
                                             .rows = request.rows,
                                             .tokens = request.tokens,
                                             .head = head,
                                             .channels = channels_of(request.shape),
                                             .index = index}));
    return BuildReport{};
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.channel_select, batch, queue, [&](const SelectRequest& request) {
      SelectCommon common = selection_of(request, reduction_);
      common.query = request.speculated_query;
      return ChannelSelect{common, channels_of(request.shape), request.index};
    });
  }

 private:
  [[nodiscard]] ChannelShape channels_of(const KvShape& shape) const noexcept {
    const auto all = static_cast<double>(shape.head_dim);
    return {.count = std::max<std::size_t>(static_cast<std::size_t>(std::lround(ratio_ * all)), 1),
            .partial = true};
  }

  [[nodiscard]] Status choose_channels(const BuildRequest& request, std::size_t head) const {
    const KvShape& shape = request.shape;
    const std::size_t dims = shape.head_dim;
    MeanSize keys(dims);
    std::vector<float> some(infinigen_chunk_tokens * dims);
    for (std::size_t begin = request.tokens.begin; begin < request.tokens.end;) {
      const TokenRange tokens{begin, std::min(begin + infinigen_chunk_tokens, request.tokens.end)};
      TERRACE_TRY(read_head_keys(request, tokens, head, some.data()));
      keys.add(std::span(some).first(tokens.size() * dims));
      begin = tokens.end;
    }
    MeanSize queries(dims);
    const std::size_t group = shape.group() * dims;
    const std::span<const float> window = request.hints.query_window;
    for (std::size_t at = head * group; at < window.size(); at += shape.query_heads * dims) {
      queries.add(window.subspan(at, group));
    }
    std::vector<std::uint32_t> channels(dims);
    std::iota(channels.begin(), channels.end(), 0U);
    std::ranges::stable_sort(channels, std::greater<>(),
                             [&](std::uint32_t i) { return keys.of(i) + queries.of(i); });
    channels.resize(channels_of(shape).count);
    std::ranges::sort(channels);
    auto* const fixed = reinterpret_cast<std::uint32_t*>(request.fixed);
    std::ranges::copy(channels, fixed + head * channels.size());
    return {};
  }

  double ratio_;
  GroupReduction reduction_;
};

}  // namespace

MadeRetrievalPolicy make_infinigen(const RetrievalOptions& options) {
  const double ratio = options.infinigen.ratio;
  if (!(ratio > 0 && ratio <= 1)) {
    return fail(Errc::invalid_argument, "infinigen.ratio {}: use a share above 0, up to 1", ratio);
  }
  return std::make_unique<InfiniGen>(options);
}

}  // namespace terrace::policies
