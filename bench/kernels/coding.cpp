// Product-quantisation codes of keys: each sub-vector's nearest centroid.
#include <cmath>

#include "kernels/questions.hpp"
#include "kernels/sample_rows.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/version.hpp"
#include "terrace/kernels/pq_encode.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::bench {
namespace {

constexpr KvShape coding_shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 128};
constexpr PqShape pq{.subspaces = 2, .bits = 6};
constexpr std::size_t dims = coding_shape.head_dim / pq.subspaces;
constexpr std::size_t coding_full_tokens = 32'768;
constexpr std::size_t coding_chunk_tokens = 256;  // as policies have them
constexpr std::size_t checked_tokens = 16;        // of each `check_step`
constexpr std::size_t check_step = 512;

/// Codes of some tokens, chunk after chunk.
struct Codes {
  explicit Codes(std::size_t tokens)
      : memory(tokens * pq.subspaces),
        chunks(cut_chunks(memory, coding_chunk_tokens * pq.subspaces)) {}
  [[nodiscard]] std::size_t of(std::size_t token, std::size_t subspace) const {
    const std::byte* const chunk = chunks[token / coding_chunk_tokens];
    return std::to_integer<std::size_t>(
        chunk[subspace * coding_chunk_tokens + token % coding_chunk_tokens]);
  }

  std::vector<std::byte> memory;
  std::vector<std::byte*> chunks;
};

class Coding {
 public:
  Coding(std::shared_ptr<SampleRows> rows, std::size_t tokens)
      : rows_(std::move(rows)),
        tokens_(tokens),
        centroids_(normal_numbers(pq.subspaces * pq.centroids() * dims, 15)),
        codes_(tokens),
        expected_(tokens) {
    // Centroids get the size that rows have, so that each is the nearest to some rows.
    for (float& x : centroids_) x *= 0.25F;
    for (std::size_t begin = 0; begin < tokens_; begin += check_step) {
      kernels::reference::pq_encode(op(expected_, {begin, begin + checked_tokens}));
    }
  }

  void run() {
    Serial threads;
    coded_ = kernels::host::pq_encode(op(codes_, {0, tokens_}), threads);
  }

  /// A sample of tokens has the reference's codes, or as near ones but for rounding.
  [[nodiscard]] Status verify() const {
    TERRACE_TRY(coded_);
    for (std::size_t token = 0; token < tokens_; ++token) {
      if (token % check_step >= checked_tokens) continue;
      for (std::size_t part = 0; part < pq.subspaces; ++part) {
        const std::size_t code = codes_.of(token, part);
        const std::size_t nearest = expected_.of(token, part);
        if (distance(token, part, code) > distance(token, part, nearest) + 1e-4) {
          return fail(Errc::corrupt, "part {} of token {} has code {}, not {}", part, token, code,
                      nearest);
        }
      }
    }
    return {};
  }

 private:
  [[nodiscard]] kernels::PqEncode op(const Codes& codes, TokenRange tokens) const {
    return {.shape = coding_shape,
            .pq = pq,
            .rows = rows_->table(),
            .tokens = tokens,
            .index = {.fixed = reinterpret_cast<const std::byte*>(centroids_.data()),
                      .chunks = codes.chunks.data(),
                      .chunk_tokens = coding_chunk_tokens}};
  }

  [[nodiscard]] double distance(std::size_t token, std::size_t part, std::size_t code) const {
    const float* const centroid = centroids_.data() + (part * pq.centroids() + code) * dims;
    double squares = 0;
    for (std::size_t i = 0; i < dims; ++i) {
      const float x = load_f32(rows_->row(token), coding_shape.dtype, part * dims + i);
      squares += std::pow(double{x} - double{centroid[i]}, 2);
    }
    return squares;
  }

  std::shared_ptr<SampleRows> rows_;
  std::size_t tokens_;
  std::vector<float> centroids_;
  Codes codes_;
  Codes expected_;
  Status coded_;
};

}  // namespace

std::vector<Question> coding_questions() {
  const std::string name = "pq_encode_n32768_d128_m2_b6";
  const auto prepare = [name](bool quick) -> Result<Contest> {
    const std::size_t tokens = quick ? 1024 : coding_full_tokens;
    TERRACE_ASSIGN(const std::shared_ptr<SampleRows> rows,
                   SampleRows::create(coding_shape, tokens, 16));
    const auto coding = std::make_shared<Coding>(rows, tokens);
    return Contest{.ours = {.name = name,
                            .version = std::string(version()),
                            .run = [coding] { coding->run(); },
                            .verify = [coding] { return coding->verify(); }},
                   .peer = {}};
  };
  return {{.name = name,
           .unit = "s",
           .parameters = {{"threads", 1},
                          {"rows", coding_full_tokens},
                          {"head_dim", coding_shape.head_dim},
                          {"subspaces", pq.subspaces},
                          {"bits", pq.bits},
                          {"dtype", "f16"}},
           .prepare = prepare}};
}

}  // namespace terrace::bench
