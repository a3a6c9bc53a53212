// Product-quantisation codes: see terrace/kernels/pq_encode.hpp.
#include "terrace/kernels/pq_encode.hpp"

#include <algorithm>
#include <array>

#include "host/centroid_tiles.hpp"
#include "host/row_arguments.hpp"
#include "host/widen_keys.hpp"

namespace terrace::kernels::host {
namespace {

constexpr std::size_t block_floats = 1 << 14;  // of keys read at once: 64 KiB

/// The work on a head and a sub-space.
struct SubspaceCoder {
  const PqEncode& op;
  std::size_t head;
  std::size_t subspace;

  [[nodiscard]] std::size_t dims() const noexcept { return op.shape.head_dim / op.pq.subspaces; }

  void code(TokenRange tokens) const noexcept {
    const std::size_t block = std::min(search_rows_max, block_floats / dims());
    for (std::size_t begin = tokens.begin; begin < tokens.end; begin += block) {
      code_block({begin, std::min(tokens.end, begin + block)});
    }
  }

 private:
  void code_block(TokenRange tokens) const noexcept {
    alignas(64) std::array<float, block_floats> keys;
    std::array<std::uint32_t, search_rows_max> labels;
    widen_keys({.shape = op.shape,
                .rows = op.rows,
                .tokens = tokens,
                .head = head,
                .first_dim = subspace * dims(),
                .dims = dims()},
               keys.data());
    std::array<std::uint8_t, search_rows_max> clustered;
    find_nearest(keys.data(), tokens.size(), labels.data());
    find_clustered(keys.data(), tokens.size(), dims(), clustered.data());
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      write_code(tokens.begin + t, clustered[t] != 0 ? labels[t] : 0);
    }
  }

  void find_nearest(const float* keys, std::size_t key_count,
                    std::uint32_t* labels) const noexcept {
    NearestSearch search;
    search.rows = keys;
    search.row_count = key_count;
    search.dims = dims();
    alignas(64) std::array<float, tile_floats(KvShape::head_dim_max)> tile;
    const std::size_t centroids = op.pq.centroids();
    const float* codebook = reinterpret_cast<const float*>(op.index.fixed) +
                            (head * op.pq.subspaces + subspace) * centroids * dims();
    begin_search(search);
    for (std::size_t first = 0; first < centroids; first += tile_centroids) {
      const std::size_t count = std::min(tile_centroids, centroids - first);
      pack_tile(codebook + first * dims(), count, dims(), Metric::l2, tile.data());
      search_tiles(search, tile.data(), 1, static_cast<std::uint32_t>(first));
    }
    end_search(search, labels);
  }

  void write_code(std::size_t position, std::uint32_t code) const noexcept {
    const IndexView& index = op.index;
    const std::size_t token = position - index.first_token;
    std::byte* chunk = index.chunks[token / index.chunk_tokens];
    chunk[(head * op.pq.subspaces + subspace) * index.chunk_tokens + token % index.chunk_tokens] =
        static_cast<std::byte>(code);
  }
};

Status check(const PqEncode& op) {
  constexpr std::string_view name = "pq_encode";
  if (const Status right = op.shape.validate(); !right) {
    return tl::unexpected(right.error().while_doing(name));
  }
  if (op.pq.subspaces == 0 || op.shape.head_dim % op.pq.subspaces != 0) {
    return fail(Errc::invalid_argument, "{}: pq.subspaces {} must divide head_dim {}", name,
                op.pq.subspaces, op.shape.head_dim);
  }
  if (op.pq.bits < 1 || op.pq.bits > 8) {
    return fail(Errc::invalid_argument, "{}: pq.bits is {}; use 1 to 8", name, op.pq.bits);
  }
  TERRACE_TRY(check_rows(name, {op.shape, op.rows, op.tokens}));
  if (!op.tokens.empty() && op.index.fixed == nullptr) {
    return fail(Errc::invalid_argument, "{}: the index must have codebooks", name);
  }
  return check_chunks(name, op.tokens, op.index);
}

}  // namespace

Status pq_encode(const PqEncode& op, Parallel& threads) {
  TERRACE_TRY(check(op));
  const std::size_t subspaces = op.pq.subspaces;
  threads.for_each(op.shape.kv_heads * subspaces, [&](std::size_t part) {
    SubspaceCoder{op, part / subspaces, part % subspaces}.code(op.tokens);
  });
  return {};
}

}  // namespace terrace::kernels::host
