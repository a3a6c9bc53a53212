// Keys, values and queries of sequences that no model has computed, as cheap as a copy.
//
//   const RowPool pool(shape, seed);
//   const Traffic traffic(pool, 7);                 // of one sequence
//   traffic.fill_rows(layer, {0, 512}, target);     // [tokens, kv_heads, 2, head_dim]
//   traffic.fill_query(layer, position, query);     // [query_heads, head_dim]
//
// Rows of some hundred clusters are drawn once. The centre of each cluster is near the centre
// before it, and a token's row is a member of one of the clusters around its position. Therefore
// keys come in clusters, and drift. A query is near the centre of a cluster that an earlier token
// belongs to, and stays there for some steps, as topics of a text do. Which row a token has is a
// function of (seed, layer, head, position): no sequence is kept, and any output can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace::bench {

/// The rows that tokens of all sequences, layers and KV heads have. Read only once it is made.
class RowPool {
 public:
  RowPool(const KvShape& shape, std::uint64_t seed);

  [[nodiscard]] const KvShape& shape() const noexcept { return shape_; }

  /// A row as it lies in memory.
  [[nodiscard]] std::span<const std::byte> row(std::size_t number) const noexcept {
    return std::span(rows_).subspan(number * shape_.row_bytes(), shape_.row_bytes());
  }

  /// The same, widened: [2, head_dim], the key first.
  [[nodiscard]] std::span<const float> floats(std::size_t number) const noexcept {
    return std::span(floats_).subspan(number * 2 * shape_.head_dim, 2 * shape_.head_dim);
  }

  static constexpr std::size_t clusters = 256;
  static constexpr std::size_t keys_per_cluster = 32;
  static constexpr std::size_t queries_per_cluster =
      8;  ///< rows after the rows with a query as their key
  static constexpr std::size_t rows_per_cluster = keys_per_cluster + queries_per_cluster;

 private:
  KvShape shape_;
  std::vector<std::byte> rows_;
  std::vector<float> floats_;
};

/// The tensors of one sequence. The pool must outlive it.
class Traffic {
 public:
  Traffic(const RowPool& pool, std::uint64_t seed) : pool_(&pool), seed_(seed) {}

  [[nodiscard]] const RowPool& pool() const noexcept { return *pool_; }

  /// Returns the number of a token's row in the pool.
  [[nodiscard]] std::size_t row(std::size_t layer, std::size_t head, std::size_t position) const;

  /// Writes the rows of some tokens, [tokens, kv_heads, 2, head_dim].
  void fill_rows(std::size_t layer, TokenRange tokens, std::byte* target) const;

  /// Writes the query of a token, [query_heads, head_dim].
  void fill_query(std::size_t layer, std::size_t position, std::span<float> target) const;

  /// Writes the queries of some tokens, [tokens, query_heads, head_dim].
  void fill_queries(std::size_t layer, TokenRange tokens, std::span<float> target) const;

 private:
  [[nodiscard]] std::size_t cluster(std::size_t layer, std::size_t head,
                                    std::size_t position) const;

  const RowPool* pool_;
  std::uint64_t seed_;
};

/// Returns the layout of tokens in rows that fill_rows() wrote.
KvTensors packed_rows(const KvShape& shape, const std::byte* rows) noexcept;

}  // namespace terrace::bench
