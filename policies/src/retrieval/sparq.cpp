// SparQ: candidates by the channels of a key that the query is largest in.
//   index:  the candidates' keys, channel by channel  (half of the KV bytes: keys are stored twice)
//   select: per KV head the r channels with the largest |q|, summed over the group; per query head
//           softmax(q[r].k[r] / sqrt(d * |q[r]| / |q|)) over the candidates, with sums of |q|;
//           reduced over the group, top k per KV head, ties to the lower position
// Reads r/d of the index. With r = d it selects what oracle does. Deterministic. Extending is the
// same as building at once.
// Source: SparQ (Ribar et al., arXiv 2312.04985), step 1 and the rows of step 2. The mean of the
// values, which step 3 mixes in for the mass that is not attended to, is left out.
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t sparq_chunk_tokens = 64;

class SparQ final : public RetrievalPolicy {
 public:
  explicit SparQ(const RetrievalOptions& options)
      : channels_(options.sparq.channels),
        proposes_(options.refine.bits > 0),
        reduction_(options.reduction) {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override {
    static const RetrievalTraits traits{.name = "sparq", .leaves_out_held = true};
    return traits;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    if (channels_ > shape.head_dim) {
      return fail(Errc::invalid_argument, "sparq.channels {}: keys have {}", channels_,
                  shape.head_dim);
    }
    if (proposes_ && channels_ == shape.head_dim) {
      return fail(
          Errc::invalid_argument,
          "sparq.channels {}: all channels score exactly, and retrieval.refine less so; use "
          "fewer, or retrieval.refine off",
          channels_);
    }
    return IndexLayout{.chunk_tokens = sparq_chunk_tokens,
                       .chunk_bytes = sparq_chunk_tokens * shape.token_bytes() / 2};
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
    TERRACE_TRY(kernels::host::key_channels({.shape = request.shape,
                                             .rows = request.rows,
                                             .tokens = request.tokens,
                                             .head = head,
                                             .channels = channels_of(request.shape),
                                             .index = request.index}));
    return BuildReport{};
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.channel_select, batch, queue, [&](const SelectRequest& request) {
      return ChannelSelect{selection_of(request, reduction_), channels_of(request.shape),
                           request.index};
    });
  }

 private:
  [[nodiscard]] ChannelShape channels_of(const KvShape& shape) const noexcept {
    const std::size_t quarter = divide_up(shape.head_dim, std::size_t{4});
    return {.count = channels_ == 0 ? quarter : channels_};
  }

  std::size_t channels_;  ///< 0 = a quarter
  bool proposes_;         ///< to a second stage
  GroupReduction reduction_;
};

}  // namespace

MadeRetrievalPolicy make_sparq(const RetrievalOptions& options) {
  return std::make_unique<SparQ>(options);
}

}  // namespace terrace::policies
