// Logits from product-quantisation codes: a look-up table per query head, then a scan of the codes.
#include <algorithm>
#include <array>
#include <utility>

#include "host/scores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/pq_scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"

#ifndef TERRACE_KERNELS_PQ_SCORES_ONCE
#define TERRACE_KERNELS_PQ_SCORES_ONCE
namespace terrace::kernels::host {

constexpr std::size_t centroids_max = 256;  // a code is one byte
constexpr std::size_t tables_at_once = 4;   // sub-spaces added up in one pass over the codes

/// Logits that the centroids of a few sub-spaces give to a query head.
struct LookupTables {
  std::size_t count = 0;                                                  // of tables
  std::size_t centroids = 0;                                              // of each
  alignas(64) std::array<float, tables_at_once * centroids_max> entries;  // [count, centroids_max]
};

/// Codes of consecutive candidates: one plane of bytes per sub-space, `plane_stride` apart.
struct CodeRun {
  const std::byte* codes;
  std::size_t plane_stride;
  std::size_t count;
  float* logits;  // [count]
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Writes query . centroid for `count` centroids of one sub-space.
void fill_table(const float* query, const float* centroids, std::size_t count, std::size_t dims,
                float scale, float* table) {
  alignas(64) float packed[KvShape::head_dim_max];
  pack_queries(query, 1, dims, scale, packed);
  const std::byte* rows[centroids_max];
  for (std::size_t c = 0; c < count; ++c) {
    rows[c] = reinterpret_cast<const std::byte*>(centroids + c * dims);
  }
  dot_rows<F32Elements, 1>(packed, rows, count, dims, table, 0, [] HWY_ATTR {});
}

using CodeTag = hn::RebindToSigned<FloatTag>;
using Codes = hn::Vec<CodeTag>;

/// A table's entries, read where they lie.
struct ReadEntries {
  explicit ReadEntries(const float* table) : entries(table) {}
  HWY_INLINE Floats at(Codes codes) const { return hn::GatherIndex(FloatTag(), entries, codes); }

  const float* entries;
};

/// At most 64 entries, held in four vectors of 16: no code is an address, which would take most of
/// the time.
struct HeldEntries {
  static constexpr std::size_t count_max = 64;
  static constexpr bool fits = lanes == 16;

  explicit HeldEntries(const float* table) {
    for (std::size_t i = 0; i < 4; ++i) quarters[i] = hn::LoadU(FloatTag(), table + i * lanes);
  }
  HWY_INLINE Floats at(Codes codes) const {
    const FloatTag tag;
    const CodeTag code_tag;
    const auto lane = hn::IndicesFromVec(tag, hn::And(codes, hn::Set(code_tag, 15)));
    const auto odd = hn::RebindMask(tag, hn::TestBit(codes, hn::Set(code_tag, 16)));
    const auto upper = hn::RebindMask(tag, hn::TestBit(codes, hn::Set(code_tag, 32)));
    const auto of = [&](std::size_t i) HWY_ATTR { return hn::TableLookupLanes(quarters[i], lane); };
    return hn::IfThenElse(upper, hn::IfThenElse(odd, of(3), of(2)),
                          hn::IfThenElse(odd, of(1), of(0)));
  }

  Floats quarters[4];
};

/// Sets (or, with `add`, raises) logits by the entries of `tables` tables, added in order.
template <typename Entries, std::size_t tables, bool add, std::size_t... table>
HWY_INLINE void scan_codes(const LookupTables& lookup, const CodeRun& run,
                           std::index_sequence<table...> /*each*/) {
  const FloatTag tag;
  const hn::Rebind<std::uint8_t, FloatTag> code_tag;
  const auto* codes = reinterpret_cast<const std::uint8_t*>(run.codes);
  const float* entries = lookup.entries.data();
  const Entries of[] = {Entries(entries + table * centroids_max)...};
  std::size_t i = 0;
  for (; i + lanes <= run.count; i += lanes) {
    Floats sum = add ? hn::LoadU(tag, run.logits + i) : hn::Zero(tag);
#pragma GCC unroll 4
    for (std::size_t j = 0; j < tables; ++j) {
      const auto code = hn::LoadU(code_tag, codes + j * run.plane_stride + i);
      sum = hn::Add(sum, of[j].at(hn::PromoteTo(CodeTag(), code)));
    }
    hn::StoreU(sum, tag, run.logits + i);
  }
  for (; i < run.count; ++i) {
    float sum = add ? run.logits[i] : 0.0F;
    for (std::size_t j = 0; j < tables; ++j) {
      sum += entries[j * centroids_max + codes[j * run.plane_stride + i]];
    }
    run.logits[i] = sum;
  }
}

template <std::size_t tables>
void scan_tables(const LookupTables& lookup, bool add, const CodeRun& run) {
  constexpr auto each = std::make_index_sequence<tables>();
  if constexpr (HeldEntries::fits) {
    if (lookup.centroids <= HeldEntries::count_max) {
      return add ? scan_codes<HeldEntries, tables, true>(lookup, run, each)
                 : scan_codes<HeldEntries, tables, false>(lookup, run, each);
    }
  }
  return add ? scan_codes<ReadEntries, tables, true>(lookup, run, each)
             : scan_codes<ReadEntries, tables, false>(lookup, run, each);
}

void scan_run(const LookupTables& lookup, bool add, const CodeRun& run) {
  if (lookup.count == 4) return scan_tables<4>(lookup, add, run);
  if (lookup.count == 3) return scan_tables<3>(lookup, add, run);
  if (lookup.count == 2) return scan_tables<2>(lookup, add, run);
  return scan_tables<1>(lookup, add, run);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(fill_table);
HWY_EXPORT(scan_run);

/// Adds the logits of sub-spaces [first, first + tables) for one query head.
void add_subspaces(const PqSelect& op, std::size_t query_head, std::size_t first,
                   std::size_t tables, float* logits) noexcept {
  LookupTables lookup{.count = tables, .centroids = op.pq.centroids()};
  for (std::size_t j = 0; j < tables; ++j) {
    float* const table = &lookup.entries[j * centroids_max];
    write_pq_table(op, query_head, first + j, table);
    // Repeated, so that bits above a code's own say nothing.
    for (std::size_t filled = lookup.centroids; filled < centroids_max; filled *= 2) {
      std::copy_n(table, filled, table + filled);
    }
  }
  const std::size_t head = query_head / op.common.shape.group();
  for_each_chunk(
      op.index, op.common.candidates,
      [&](const std::byte* chunk, std::size_t offset, std::size_t begin, std::size_t count) {
        const std::size_t plane = head * op.pq.subspaces + first;
        const CodeRun run{.codes = chunk + plane * op.index.chunk_tokens + offset,
                          .plane_stride = op.index.chunk_tokens,
                          .count = count,
                          .logits = logits + begin};
        HWY_DYNAMIC_DISPATCH(scan_run)(lookup, first > 0, run);
      });
}

}  // namespace

void write_pq_table(const PqSelect& op, std::size_t query_head, std::size_t subspace,
                    float* table) noexcept {
  const KvShape& shape = op.common.shape;
  const std::size_t dims = shape.head_dim / op.pq.subspaces;
  const std::size_t centroids = op.pq.centroids();
  const std::size_t plane = query_head / shape.group() * op.pq.subspaces + subspace;
  HWY_DYNAMIC_DISPATCH(fill_table)
  (op.common.query + query_head * shape.head_dim + subspace * dims,
   reinterpret_cast<const float*>(op.index.fixed) + plane * centroids * dims, centroids, dims,
   shape.logit_scale(), table);
}

void write_pq_logits(const PqSelect& op, std::size_t head, float* logits,
                     std::size_t stride) noexcept {
  const std::size_t group = op.common.shape.group();
  for (std::size_t q = 0; q < group; ++q) {
    for (std::size_t first = 0; first < op.pq.subspaces; first += tables_at_once) {
      const std::size_t tables = std::min(tables_at_once, op.pq.subspaces - first);
      add_subspaces(op, head * group + q, first, tables, logits + q * stride);
    }
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
