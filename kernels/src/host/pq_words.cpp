// Selection by code words: see host/pq_words.hpp.
//
// In the scratch of a KV head, [group + 1, stride], rows hold words instead of candidates: a row
// per query head its logits and, behind those of the first, the weights; the last row the counts.
#include "host/pq_words.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "host/group_weights.hpp"
#include "host/scores.hpp"
#include "host/weight_keys.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/pq_words.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Returns how many candidates have a key above `key`. `words` is a multiple of 64.
std::size_t count_above(const Key* keys, const std::uint32_t* counts, std::size_t words, Key key) {
  const hn::RebindToUnsigned<FloatTag> tag;
  const hn::RebindToSigned<FloatTag> key_tag;
  auto sum = hn::Zero(tag);
  for (std::size_t w = 0; w < words; w += lanes) {
    const auto above = hn::Gt(hn::LoadU(key_tag, keys + w), hn::Set(key_tag, key));
    sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(tag, above), hn::LoadU(tag, counts + w)));
  }
  return hn::GetLane(hn::SumOfLanes(tag, sum));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(count_above);

constexpr std::size_t word_bits_max = 12;
constexpr std::size_t words_max = std::size_t{1} << word_bits_max;
constexpr std::size_t codes_max = 256;  // a code is one byte

/// What becomes of the candidates that have a word.
enum class Fate : std::uint8_t { left_out = 0, chosen = 1, tied = 2 };

std::size_t word_bits(const PqSelect& op) noexcept { return op.pq.subspaces * op.pq.bits; }

/// Returns the words there are, or 64 if that is more: what vectors go over.
std::size_t padded_words(const PqSelect& op) noexcept {
  return std::max(std::size_t{64}, std::size_t{1} << word_bits(op));
}

/// Words of consecutive candidates.
struct WordBlock {
  static constexpr std::size_t size_max = 512;

  std::size_t begin = 0;  // candidate of word 0
  std::size_t count = 0;
  std::array<std::uint16_t, size_max> words;
};

/// Makes words of codes: planes of one or two sub-spaces, `stride` apart.
void join_codes(const std::byte* codes, std::size_t stride, const PqShape& pq,
                WordBlock& block) noexcept {
  const auto* first = reinterpret_cast<const std::uint8_t*>(codes);
  if (pq.subspaces == 1) {
    std::copy_n(first, block.count, block.words.data());
    return;
  }
  const std::uint8_t* second = first + stride;
  for (std::size_t i = 0; i < block.count; ++i) {
    block.words[i] = static_cast<std::uint16_t>(first[i] | second[i] << pq.bits);
  }
}

/// Calls visit(block) for the words of all candidates, in order.
template <typename Visit>
void for_each_block(const PqSelect& op, std::size_t head, Visit visit) {
  const std::size_t stride = op.index.chunk_tokens;
  WordBlock block;
  for_each_chunk(
      op.index, op.common.candidates,
      [&](const std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
        const std::byte* codes = chunk + head * op.pq.subspaces * stride + offset;
        for (std::size_t i = 0; i < count; i += WordBlock::size_max) {
          block.begin = first + i;
          block.count = std::min(WordBlock::size_max, count - i);
          join_codes(codes + i, stride, op.pq, block);
          visit(block);
        }
      });
}

/// Counts the candidates that have each word: counts [words], followed by as much room.
void count_words(const PqSelect& op, std::size_t head, std::uint32_t* counts) noexcept {
  const std::size_t words = padded_words(op);
  // Two counts of each word in turn: a word that follows itself need not wait for its own count.
  std::uint32_t* const odd = counts + words;
  std::fill_n(counts, 2 * words, 0U);
  for_each_block(op, head, [&](const WordBlock& block) {
    std::size_t i = 0;
    for (; i + 2 <= block.count; i += 2) {
      ++counts[block.words[i]];
      ++odd[block.words[i + 1]];
    }
    if (i < block.count) ++counts[block.words[i]];
  });
  for (std::size_t w = 0; w < words; ++w) counts[w] += odd[w];
}

/// Writes the logits of words for one query head; words that nobody has get -inf.
void write_word_logits(const PqSelect& op, std::size_t query_head, const std::uint32_t* counts,
                       float* logits) noexcept {
  std::array<float, codes_max> first;
  std::array<float, codes_max> second{};  // of a sub-space that is not there
  write_pq_table(op, query_head, 0, first.data());
  if (op.pq.subspaces == 2) write_pq_table(op, query_head, 1, second.data());
  const std::size_t codes = op.pq.centroids();
  const std::size_t words = padded_words(op);
  for (std::size_t begin = 0; begin < words; begin += codes) {
    const float addend = second[begin / codes];
    for (std::size_t c = 0; c < codes; ++c) {
      const bool present = counts[begin + c] != 0;
      logits[begin + c] = present ? first[c] + addend : -std::numeric_limits<float>::infinity();
    }
  }
}

/// Finds the count-th largest key of all candidates, 0 < count < candidates, by bisection.
Threshold find_threshold(const Key* keys, const std::uint32_t* counts, std::size_t words,
                         std::size_t count) noexcept {
  Key low = lowest_key;    // keys above it: count or more, or it is the answer
  Key high = highest_key;  // keys above it: fewer than count
  while (low < high) {
    const Key middle = static_cast<Key>((std::int64_t{low} + high) >> 1);
    if (HWY_DYNAMIC_DISPATCH(count_above)(keys, counts, words, middle) < count) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return {.key = low, .ties = count - HWY_DYNAMIC_DISPATCH(count_above)(keys, counts, words, low)};
}

/// Writes the positions of chosen candidates and of the first `ties` tied ones, ascending.
void write_chosen(const PqSelect& op, std::size_t head, const Fate* fates, std::size_t ties,
                  std::uint32_t* ids) noexcept {
  // A position is written before it is known to be chosen: not to ids, which has no room for that.
  std::array<std::uint32_t, WordBlock::size_max> found;
  for_each_block(op, head, [&](const WordBlock& block) {
    const auto position = static_cast<std::uint32_t>(op.common.candidates.begin + block.begin);
    std::size_t count = 0;
    for (std::uint32_t i = 0; i < block.count; ++i) {
      const Fate fate = fates[block.words[i]];
      found[count] = position + i;
      if (fate != Fate::tied) {
        count += static_cast<std::size_t>(fate);
      } else if (ties > 0) {
        --ties;
        ++count;
      }
    }
    ids = std::copy_n(found.data(), count, ids);
  });
}

}  // namespace

bool has_few_words(const PqSelect& op) noexcept {
  return op.pq.subspaces <= 2 && word_bits(op) <= word_bits_max &&
         op.common.candidates.size() >= 2 * padded_words(op);
}

void select_by_words(const PqSelect& op, std::size_t head) noexcept {
  const SelectCommon& common = op.common;
  const std::size_t count = std::min(common.count, common.candidates.size());
  common.id_count[head] = static_cast<std::uint32_t>(count);
  if (count == 0) return;
  const std::size_t group = common.shape.group();
  const std::size_t stride = (common.candidates.size() + 63) / 64 * 64;
  const std::size_t words = padded_words(op);
  float* logits = common.scratch + head * (group + 1) * stride;
  auto* counts = reinterpret_cast<std::uint32_t*>(logits + group * stride);
  count_words(op, head, counts);
  for (std::size_t q = 0; q < group; ++q) {
    write_word_logits(op, head * group + q, counts, logits + q * stride);
  }
  float* weights = logits;
  if (group > 1) {
    weights = logits + words;
    reduce_group(
        {.rows = logits, .group = group, .stride = stride, .size = words, .counts = counts},
        common.reduction, weights);
  }
  std::array<Key, words_max> keys;
  std::transform(weights, weights + words, keys.begin(), key_of);
  Threshold threshold{.key = lowest_key, .ties = count};
  if (count < common.candidates.size()) {
    threshold = find_threshold(keys.data(), counts, words, count);
  }
  std::array<Fate, words_max> fates;
  for (std::size_t w = 0; w < words; ++w) {
    const Fate otherwise = keys[w] == threshold.key ? Fate::tied : Fate::left_out;
    fates[w] = keys[w] > threshold.key ? Fate::chosen : otherwise;
  }
  write_chosen(op, head, fates.data(), threshold.ties, common.ids + head * common.id_stride);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
