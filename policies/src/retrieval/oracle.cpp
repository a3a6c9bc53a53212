// Exact top-k: every candidate's true score, so the best any selection of k rows per KV head can
// do.
//   index: the candidates' keys, as stored           (half of the KV bytes: a bound, not a product)
//   select: softmax(q.k / sqrt d) over the candidates per query head, reduced over the group,
//           top k per KV head, ties to the lower position
// Deterministic. Extending is the same as building at once.
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t oracle_chunk_tokens = 64;

class Oracle final : public RetrievalPolicy {
 public:
  explicit Oracle(GroupReduction reduction) : reduction_(reduction) {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override {
    static const RetrievalTraits traits{.name = "oracle", .leaves_out_held = true};
    return traits;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    return IndexLayout{.chunk_tokens = oracle_chunk_tokens,
                       .chunk_bytes = oracle_chunk_tokens * shape.token_bytes() / 2};
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return selection_scratch_floats(shape, candidates);
  }

  [[nodiscard]] std::size_t build_parts(const BuildRequest& /*request*/) const noexcept override {
    return 1;
  }

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t /*part*/) const override {
    Serial alone;
    TERRACE_TRY(kernels::host::key_copy(
        {request.shape, request.rows, request.tokens, request.index}, alone));
    return BuildReport{};
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.exact_select, batch, queue, [&](const SelectRequest& request) {
      return ExactSelect{selection_of(request, reduction_), request.index};
    });
  }

 private:
  GroupReduction reduction_;
};

}  // namespace

MadeRetrievalPolicy make_oracle(const RetrievalOptions& options) {
  return std::make_unique<Oracle>(options.reduction);
}

}  // namespace terrace::policies
