// Logits from the means of groups and the signs of rests. Signs are looked up four elements at a
// time, in tables of 16 bytes that a register holds, so that one instruction serves 32 tokens. Sums
// are of whole numbers: the same on every instruction set.
#include <algorithm>
#include <array>

#include "host/prefetch.hpp"
#include "host/row_products.hpp"
#include "host/scores.hpp"
#include "host/sign_codes.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/signs.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/sign_scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

#ifndef TERRACE_KERNELS_SIGN_SCORES_ONCE
#define TERRACE_KERNELS_SIGN_SCORES_ONCE
namespace terrace::kernels::host {

constexpr std::size_t queries_at_once = 4;
constexpr std::size_t quads_max = KvShape::head_dim_max / 4;
constexpr std::size_t entries = 16;  // of a table: four signs

/// Entries are raised by this, so that no entry is below 0.
constexpr unsigned raise = 4 * static_cast<unsigned>(sign_query_max);

/// Query heads of one KV head, as signs are multiplied with them.
struct SignTables {
  alignas(64) std::array<std::uint8_t, queries_at_once * quads_max * entries> sums;
  std::array<float, queries_at_once> units;
};

/// A page; its logits are written to `logits`.
struct PageScan {
  const std::uint8_t* signs;
  const std::uint8_t* labels;
  const std::uint16_t* factors;
  std::size_t quads;
  std::size_t page_tokens;
  std::size_t groups;
  const SignTables* tables;
  const float*
      bases;  ///< [queries, base_stride]: logits of means; 16 floats after them can be read
  std::size_t base_stride;
  float* logits;
  std::size_t stride;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

using ByteTag = hn::CappedTag<std::uint8_t, 32>;
using SumTag = hn::Repartition<std::uint16_t, ByteTag>;
using NumberTag = hn::RebindToSigned<hn::RebindToUnsigned<FloatTag>>;

/// Sums of 16 bits for each of a vector's bytes. Until the end, the sums of words' lower bytes
/// contain 256 times the sums of their upper bytes.
struct ByteSums {
  hn::Vec<SumTag> all;
  hn::Vec<SumTag> upper;

  HWY_INLINE ByteSums() { all = upper = hn::Zero(SumTag()); }
  HWY_INLINE void add(hn::Vec<ByteTag> bytes) {
    const auto words = hn::BitCast(SumTag(), bytes);
    all = hn::Add(all, words);
    upper = hn::Add(upper, hn::ShiftRight<8>(words));
  }
  HWY_INLINE void store(std::uint16_t* to) const {
    hn::StoreInterleaved2(hn::Sub(all, hn::ShiftLeft<8>(upper)), upper, SumTag(), to);
  }
};

/// Adds up the entries of all quads: [queries, page_tokens].
template <std::size_t queries>
HWY_INLINE void add_entries(const PageScan& page, std::uint16_t* sums) {
  const ByteTag tag;
  constexpr std::size_t at_once = hn::MaxLanes(tag);
  const std::size_t half = page.page_tokens / 2;
  for (std::size_t begin = 0; begin < half; begin += at_once) {
    ByteSums low[queries];
    ByteSums high[queries];
    for (std::size_t quad = 0; quad < page.quads; ++quad) {
      const auto bytes = hn::LoadU(tag, page.signs + quad * half + begin);
      const auto first = hn::And(bytes, hn::Set(tag, 15));
      const auto second = hn::ShiftRight<4>(bytes);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < queries; ++q) {
        const std::uint8_t* const entry =
            page.tables->sums.data() + (q * page.quads + quad) * entries;
        const auto table = hn::LoadDup128(tag, entry);
        low[q].add(hn::TableLookupBytes(table, first));
        high[q].add(hn::TableLookupBytes(table, second));
      }
    }
    for (std::size_t q = 0; q < queries; ++q) {
      low[q].store(sums + q * page.page_tokens + begin);
      high[q].store(sums + q * page.page_tokens + half + begin);
    }
  }
}

/// The logits of means that tokens have by their labels; 0 of those of no group.
HWY_INLINE Floats base_of(const PageScan& page, const float* bases, hn::Vec<NumberTag> labels) {
  const FloatTag tag;
  const NumberTag numbers;
  // Labels after the last indexed token are undefined.
  const auto last = hn::Set(numbers, static_cast<std::int32_t>(page.groups) - 1);
  const auto alone = hn::RebindMask(tag, hn::Gt(labels, last));
  if (page.groups <= lanes) {
    const auto lane = hn::And(labels, hn::Set(numbers, static_cast<std::int32_t>(lanes - 1)));
    const Floats all = hn::LoadU(tag, bases);
    return hn::IfThenZeroElse(alone, hn::TableLookupLanes(all, hn::IndicesFromVec(tag, lane)));
  }
  const auto there = hn::IfThenZeroElse(hn::RebindMask(numbers, alone), labels);
  return hn::IfThenZeroElse(alone, hn::GatherIndex(tag, bases, there));
}

template <std::size_t queries>
HWY_INLINE void scan_page_of(const PageScan& page) {
  alignas(64) std::uint16_t sums[queries * GroupShape::page_tokens_max];
  add_entries<queries>(page, sums);
  const FloatTag tag;
  const NumberTag numbers;
  const hn::Rebind<std::uint16_t, FloatTag> sum_tag;
  const hn::Rebind<std::uint8_t, FloatTag> label_tag;
  const Floats raised = hn::Set(tag, static_cast<float>(raise * page.quads));
  for (std::size_t i = 0; i < page.page_tokens; i += lanes) {
    const auto labels = hn::PromoteTo(numbers, hn::LoadU(label_tag, page.labels + i));
    const Floats factor = Bf16Elements::load(reinterpret_cast<const std::byte*>(page.factors + i));
    for (std::size_t q = 0; q < queries; ++q) {
      const auto sum = hn::LoadU(sum_tag, sums + q * page.page_tokens + i);
      const Floats product = hn::Sub(hn::ConvertTo(tag, hn::PromoteTo(numbers, sum)), raised);
      const Floats rest = hn::Mul(factor, hn::Mul(hn::Set(tag, page.tables->units[q]), product));
      const Floats base = base_of(page, page.bases + q * page.base_stride, labels);
      hn::StoreU(hn::Add(base, rest), tag, page.logits + q * page.stride + i);
    }
  }
}

void scan_page(const PageScan& page, std::size_t queries) {
  if (queries == 4) return scan_page_of<4>(page);
  if (queries == 3) return scan_page_of<3>(page);
  if (queries == 2) return scan_page_of<2>(page);
  return scan_page_of<1>(page);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(scan_page);

constexpr std::size_t groups_at_once = 256;
constexpr std::size_t pages_ahead = 3;  // asked for while one is scanned

/// The logits of some query heads of a KV head.
class HeadScan {
 public:
  HeadScan(const SignSelect& op, std::size_t head, std::size_t first_query, std::size_t queries,
           float* logits, std::size_t stride) noexcept
      : op_(op),
        head_(head),
        first_query_(head * op.common.shape.group() + first_query),
        queries_(queries),
        logits_(logits + first_query * stride),
        stride_(stride) {
    for (std::size_t q = 0; q < queries; ++q) fill_tables(q);
  }

  void run() noexcept {
    const TokenRange& candidates = op_.common.candidates;
    const std::size_t size = groups().page_tokens;
    const std::size_t some = std::max<std::size_t>(groups_at_once / groups().groups, 1);
    const std::size_t end = divide_up(candidates.end - op_.index.first_token, size);
    for (std::size_t page = (candidates.begin - op_.index.first_token) / size; page < end;
         page += some) {
      scan(page, std::min(page + some, end));
    }
  }

 private:
  [[nodiscard]] const KvShape& shape() const noexcept { return op_.common.shape; }
  [[nodiscard]] const GroupShape& groups() const noexcept { return op_.signs.groups; }
  [[nodiscard]] SignPlace place(std::size_t page) const noexcept {
    return {shape(), op_.signs, op_.index, head_, page};
  }

  void fill_tables(std::size_t q) noexcept {
    std::array<float, KvShape::head_dim_max> numbers;
    const std::size_t dims = shape().head_dim;
    const float* const query = op_.common.query + (first_query_ + q) * dims;
    tables_.units[q] =
        round_query(query, dims, numbers.data(), sign_query_max).unit * shape().logit_scale();
    std::fill_n(numbers.data() + dims, align_up(dims, 4) - dims, 0.0F);
    const std::size_t quads = SignShape::quads(shape());
    for (std::size_t quad = 0; quad < quads; ++quad) {
      std::uint8_t* const sums = tables_.sums.data() + (q * quads + quad) * entries;
      const float* const four = numbers.data() + 4 * quad;
      sums[0] = static_cast<std::uint8_t>(static_cast<float>(raise) -
                                          (four[0] + four[1] + four[2] + four[3]));
      for (unsigned i = 0; i < 4; ++i) {
        const int twice = 2 * static_cast<int>(four[i]);
        for (unsigned bits = 0; bits < 1U << i; ++bits) {
          sums[bits + (1U << i)] = static_cast<std::uint8_t>(sums[bits] + twice);
        }
      }
    }
  }

  /// Writes the logits of pages [begin, end), at most groups_at_once groups.
  void scan(std::size_t begin, std::size_t end) noexcept {
    write_bases(begin, end);
    const TokenRange& candidates = op_.common.candidates;
    const std::size_t size = groups().page_tokens;
    for (std::size_t page = begin; page < end; ++page) {
      if (page + pages_ahead < end) ask_for(page + pages_ahead);
      const std::size_t first = op_.index.first_token + page * size;
      const float* const bases = bases_.data() + (page - begin) * groups().groups;
      if (first >= candidates.begin && first + size <= candidates.end) {
        scan_one(page, bases, logits_ + (first - candidates.begin), stride_);
        continue;
      }
      std::array<float, queries_at_once * GroupShape::page_tokens_max> all;
      scan_one(page, bases, all.data(), size);
      const std::size_t from = std::max(first, candidates.begin);
      const std::size_t to = std::min(first + size, candidates.end);
      for (std::size_t q = 0; q < queries_; ++q) {
        std::copy_n(all.data() + q * size + (from - first), to - from,
                    logits_ + q * stride_ + (from - candidates.begin));
      }
    }
  }

  void ask_for(std::size_t page) const noexcept {
    const SignPlace at = place(page);
    const std::size_t tokens = groups().page_tokens;
    prefetch(reinterpret_cast<const std::byte*>(at.signs()),
             tokens / 2 * SignShape::quads(shape()));
    prefetch(reinterpret_cast<const std::byte*>(at.groups().labels()), tokens);
    prefetch(reinterpret_cast<const std::byte*>(at.factors()), tokens * sizeof(std::uint16_t));
  }

  /// Writes the logits of the means of pages [begin, end). A page that is not full has no means: no
  /// token names them.
  void write_bases(std::size_t begin, std::size_t end) noexcept {
    const std::size_t full = op_.index.token_count / groups().page_tokens;
    std::size_t count = 0;
    std::array<const std::byte*, groups_at_once> keys;
    for (std::size_t page = begin; page < std::min(end, full); ++page) {
      const std::byte* const means = place(page).groups().means();
      for (std::size_t group = 0; group < groups().groups; ++group) {
        keys[count++] = means + group * shape().row_bytes();
      }
    }
    row_products({.dtype = shape().dtype,
                  .dims = shape().head_dim,
                  .scale = shape().logit_scale(),
                  .queries = op_.common.query + first_query_ * shape().head_dim,
                  .query_count = queries_,
                  .keys = keys.data(),
                  .key_count = count,
                  .logits = bases_.data(),
                  .stride = groups_at_once});
  }

  void scan_one(std::size_t page, const float* bases, float* logits,
                std::size_t stride) const noexcept {
    const SignPlace at = place(page);
    HWY_DYNAMIC_DISPATCH(scan_page)
    ({.signs = at.signs(),
      .labels = at.groups().labels(),
      .factors = at.factors(),
      .quads = SignShape::quads(shape()),
      .page_tokens = groups().page_tokens,
      .groups = groups().groups,
      .tables = &tables_,
      .bases = bases,
      .base_stride = groups_at_once,
      .logits = logits,
      .stride = stride},
     queries_);
  }

  const SignSelect& op_;
  std::size_t head_;
  std::size_t first_query_;  ///< of all query heads
  std::size_t queries_;
  float* logits_;
  std::size_t stride_;
  SignTables tables_;
  std::array<float, queries_at_once * groups_at_once + 16> bases_{};
};

}  // namespace

void write_sign_logits(const SignSelect& op, std::size_t head, float* logits,
                       std::size_t stride) noexcept {
  const std::size_t group = op.common.shape.group();
  if (op.common.candidates.empty()) return;
  for (std::size_t q = 0; q < group; q += queries_at_once) {
    HeadScan(op, head, q, std::min(queries_at_once, group - q), logits, stride).run();
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
