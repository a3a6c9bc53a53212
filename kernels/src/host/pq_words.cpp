// Selection by code words: see host/pq_words.hpp.
//
// In the scratch of a KV head, [group + 1, candidates], rows hold words instead of candidates
// (there are no more words than candidates): a row per query head its logits, the last one the
// weights.
#include "host/pq_words.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "host/group_weights.hpp"
#include "host/isa_choice.hpp"
#include "host/prefetch.hpp"
#include "host/scores.hpp"
#include "host/weight_keys.hpp"
#include "host/word_bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/pq_words.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/weight_keys-inl.hpp"

#ifndef TERRACE_KERNELS_PQ_WORDS_ONCE
#define TERRACE_KERNELS_PQ_WORDS_ONCE
namespace terrace::kernels::host {

/// The fate of the candidates that have a word.
enum Fate : std::uint8_t { left_out = 0, chosen = 1, tied = 2 };

/// Words of consecutive candidates.
struct WordBlock {
  static constexpr std::size_t size_max = 512;

  std::size_t begin = 0;  // candidate of word 0
  std::size_t count = 0;
  alignas(64) std::array<std::uint16_t, size_max> words;
};

/// A word between the bounds of a search.
struct RankedWord {
  Key key;
  std::uint32_t count;  // candidates that have it
};

/// Logits of one query head by word: first[word % codes] + second[word / codes].
struct WordLogits {
  const float* first;
  const float* second;
  std::size_t codes;
  std::size_t words;            // a multiple of 64
  const std::uint32_t* counts;  // [words]
  float* logits;                // [words]
};

/// The target of chosen candidates.
struct ChosenIds {
  std::size_t ties;  // how many tied candidates are still to be taken
  std::uint32_t* ids;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Makes words of codes. Only the low bits of a code count, because words are indices.
void join_codes(const CodePlanes& planes, WordBlock& block) {
  const hn::CappedTag<std::uint16_t, 32> tag;
  const hn::Rebind<std::uint8_t, decltype(tag)> code_tag;
  const auto shift = static_cast<int>(planes.bits);
  const unsigned code_mask = (1U << planes.bits) - 1;
  const auto known = hn::Set(code_tag, static_cast<std::uint8_t>(code_mask));
  std::size_t i = 0;
  for (; i + hn::Lanes(tag) <= block.count; i += hn::Lanes(tag)) {
    auto words = hn::PromoteTo(tag, hn::And(known, hn::LoadU(code_tag, planes.first + i)));
    if (planes.second != nullptr) {
      const auto second =
          hn::PromoteTo(tag, hn::And(known, hn::LoadU(code_tag, planes.second + i)));
      words = hn::Or(words, hn::ShiftLeftSame(second, shift));
    }
    hn::StoreU(words, tag, block.words.data() + i);
  }
  for (; i < block.count; ++i) {
    const unsigned second = planes.second == nullptr ? 0U : planes.second[i] & code_mask;
    block.words[i] =
        static_cast<std::uint16_t>((planes.first[i] & code_mask) | second << planes.bits);
  }
}

/// Writes logits; words that no candidate has get -inf.
void write_logits(const WordLogits& of) {
  const FloatTag tag;
  const hn::RebindToUnsigned<FloatTag> count_tag;
  const Floats nobody = hn::Set(tag, -std::numeric_limits<float>::infinity());
  for (std::size_t w = 0; w < of.words; w += lanes) {
    const Floats sum =
        hn::Add(hn::LoadU(tag, of.first + w % of.codes), hn::Set(tag, of.second[w / of.codes]));
    const auto absent = hn::Eq(hn::LoadU(count_tag, of.counts + w), hn::Zero(count_tag));
    hn::StoreU(hn::IfThenElse(hn::RebindMask(tag, absent), nobody, sum), tag, of.logits + w);
  }
}

/// Returns how many candidates have a key above `key`. `words` is a multiple of 64.
std::size_t count_above(const Key* keys, const std::uint32_t* counts, std::size_t words, Key key) {
  const hn::RebindToUnsigned<FloatTag> tag;
  const KeyTag key_tag;
  auto sum = hn::Zero(tag);
  for (std::size_t w = 0; w < words; w += lanes) {
    const auto above = hn::Gt(hn::LoadU(key_tag, keys + w), hn::Set(key_tag, key));
    sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(tag, above), hn::LoadU(tag, counts + w)));
  }
  return hn::GetLane(hn::SumOfLanes(tag, sum));
}

/// Writes the words that have candidates and keys in [low, high], and returns how many there are.
std::size_t words_between(const Key* keys, const std::uint32_t* counts, std::size_t words, Key low,
                          Key high, RankedWord* between) {
  const KeyTag tag;
  std::size_t found = 0;
  for (std::size_t w = 0; w < words; w += lanes) {
    const Keys some = hn::LoadU(tag, keys + w);
    const auto outside = hn::Or(hn::Lt(some, hn::Set(tag, low)), hn::Gt(some, hn::Set(tag, high)));
    for (std::uint64_t bits = bits_of(tag, hn::Not(outside)); bits != 0; bits &= bits - 1) {
      const std::size_t word = w + static_cast<std::size_t>(__builtin_ctzll(bits));
      between[found] = {.key = keys[word], .count = counts[word]};
      found += counts[word] != 0 ? 1 : 0;
    }
  }
  return found;
}

void write_keys(const float* weights, std::size_t words, Key* keys) {
  for (std::size_t w = 0; w < words; w += lanes) {
    hn::StoreU(keys_of(hn::LoadU(FloatTag(), weights + w)), KeyTag(), keys + w);
  }
}

/// Writes the ids of chosen candidates, and of tied ones while ties are left; ascending.
/// `first_id` is the block's first candidate's.
void write_chosen(const WordBlock& block, const Fate* fates, std::uint32_t first_id,
                  ChosenIds& out) {
  const hn::CappedTag<std::uint8_t, 64> tag;
  alignas(64) std::array<std::uint8_t, WordBlock::size_max> fate;
#pragma GCC unroll 8
  for (std::size_t i = 0; i < block.count; ++i) fate[i] = fates[block.words[i]];
  std::fill(fate.begin() + block.count, fate.end(), left_out);
  ChosenIds next = out;
  for (std::size_t i = 0; i < block.count; i += hn::Lanes(tag)) {
    const auto kept = hn::Ne(hn::Load(tag, fate.data() + i), hn::Zero(tag));
    for (std::uint64_t bits = bits_of(tag, kept); bits != 0; bits &= bits - 1) {
      const std::size_t at = i + static_cast<std::size_t>(__builtin_ctzll(bits));
      if (fate[at] == tied) {
        if (next.ties == 0) continue;
        --next.ties;
      }
      *next.ids++ = first_id + static_cast<std::uint32_t>(at);
    }
  }
  out = next;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(join_codes);
HWY_EXPORT(write_logits);
HWY_EXPORT(count_above);
HWY_EXPORT(words_between);
HWY_EXPORT(write_keys);
HWY_EXPORT(write_chosen);

constexpr std::size_t code_bits_min = 4;  // the codes of a sub-space fill vectors
constexpr std::size_t word_bits_max = 12;
constexpr std::size_t words_max = std::size_t{1} << word_bits_max;
constexpr std::size_t codes_max = 256;  // a code is one byte

std::size_t word_bits(const PqSelect& op) noexcept { return op.pq.subspaces * op.pq.bits; }

/// Returns the words there are, or 64 if that is more: what vectors go over.
std::size_t padded_words(const PqSelect& op) noexcept {
  return std::max(std::size_t{64}, std::size_t{1} << word_bits(op));
}

/// Prefetches the codes of a KV head two chunks after the candidate's: chunks lie at unrelated
/// addresses, and the work on a chunk is too long for the CPU to look ahead itself.
void ask_for_codes_ahead(const PqSelect& op, std::size_t head, std::size_t candidate) noexcept {
  constexpr std::size_t chunks_ahead = 2;
  const IndexView& index = op.index;
  const std::size_t before = op.common.candidates.begin - index.first_token;
  const std::size_t chunk = (before + candidate) / index.chunk_tokens + chunks_ahead;
  const std::size_t last = (before + op.common.candidates.size() - 1) / index.chunk_tokens;
  if (chunk > last) return;
  const std::size_t bytes = op.pq.subspaces * index.chunk_tokens;
  prefetch(index.chunks[chunk] + head * bytes, bytes);
}

/// Calls visit(planes, begin, count) for the codes of all candidates, in order, up to `at_once` of
/// them from candidate `begin` on.
template <typename Visit>
void for_each_codes(const PqSelect& op, std::size_t head, std::size_t at_once, Visit visit) {
  const std::size_t stride = op.index.chunk_tokens;
  for_each_chunk(
      op.index, op.common.candidates,
      [&](const std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
        ask_for_codes_ahead(op, head, first);
        const auto* codes =
            reinterpret_cast<const std::uint8_t*>(chunk) + head * op.pq.subspaces * stride + offset;
        for (std::size_t i = 0; i < count; i += at_once) {
          const std::uint8_t* second = op.pq.subspaces == 2 ? codes + i + stride : nullptr;
          visit(CodePlanes{codes + i, second, op.pq.bits}, first + i, std::min(at_once, count - i));
        }
      });
}

/// Calls visit(block) for the words of all candidates, in order.
template <typename Visit>
void for_each_block(const PqSelect& op, std::size_t head, Visit visit) {
  WordBlock block;
  for_each_codes(op, head, WordBlock::size_max,
                 [&](const CodePlanes& planes, std::size_t begin, std::size_t count) {
                   block.begin = begin;
                   block.count = count;
                   HWY_DYNAMIC_DISPATCH(join_codes)(planes, block);
                   visit(block);
                 });
}

/// Counts of words in the making. Neighbours often have the same word, and a count waits for the
/// count before it if that is of the same word: so words from all over a block take turns, and
/// tables do, which are small to stay in the first cache.
class WordTallies {
 public:
  explicit WordTallies(std::size_t words) noexcept : words_(words) { clear(); }

  [[nodiscard]] bool has_room(std::size_t candidates) const noexcept {
    return tallied_ + candidates <= std::numeric_limits<std::uint16_t>::max();
  }

  void add(const WordBlock& block) noexcept {
    constexpr std::size_t turns = 8;
    const std::size_t stride = block.count / turns;
    for (std::size_t i = 0; i < stride; ++i) {
#pragma GCC unroll 8
      for (std::size_t turn = 0; turn < turns; ++turn) {
        ++tallies_[turn % tables][block.words[turn * stride + i]];
      }
    }
    for (std::size_t i = turns * stride; i < block.count; ++i) ++tallies_[0][block.words[i]];
    tallied_ += block.count;
  }

  void move_to(std::uint32_t* counts) noexcept {
    for (std::size_t w = 0; w < words_; ++w) {
      for (const Table& table : tallies_) counts[w] += table[w];
    }
    clear();
  }

 private:
  static constexpr std::size_t tables = 4;
  using Table = std::array<std::uint16_t, words_max>;

  void clear() noexcept {
    for (Table& table : tallies_) std::fill_n(table.begin(), words_, std::uint16_t{0});
    tallied_ = 0;
  }

  std::size_t words_;
  std::size_t tallied_ = 0;  // candidates since the tables were cleared
  std::array<Table, tables> tallies_;
};

/// Counts the candidates that have each word: counts [words].
void count_words(const PqSelect& op, std::size_t head, std::uint32_t* counts) noexcept {
  std::fill_n(counts, padded_words(op), 0U);
  WordTallies tallies(padded_words(op));
  for_each_block(op, head, [&](const WordBlock& block) {
    if (!tallies.has_room(block.count)) tallies.move_to(counts);
    tallies.add(block);
  });
  tallies.move_to(counts);
}

/// Writes the logits of words for one query head; words that no candidate has get -inf.
void write_word_logits(const PqSelect& op, std::size_t query_head, const std::uint32_t* counts,
                       float* logits) noexcept {
  std::array<float, codes_max> first;
  std::array<float, codes_max> second{};  // of a missing sub-space
  write_pq_table(op, query_head, 0, first.data());
  if (op.pq.subspaces == 2) write_pq_table(op, query_head, 1, second.data());
  HWY_DYNAMIC_DISPATCH(write_logits)
  ({.first = first.data(),
    .second = second.data(),
    .codes = op.pq.centroids(),
    .words = padded_words(op),
    .counts = counts,
    .logits = logits});
}

/// Finds the count-th largest key of all candidates, 0 < count < candidates: bisects while words
/// are many, and sorts those left between the bounds.
Threshold find_threshold(const Key* keys, const std::uint32_t* counts, std::size_t words,
                         std::size_t count) noexcept {
  constexpr int bisections = 12;
  Key low = lowest_key;    // keys above it: count or more, or it is the answer
  Key high = highest_key;  // keys above it: fewer than count
  std::size_t above = 0;   // candidates with keys above high
  for (int i = 0; i < bisections && low < high; ++i) {
    const Key middle = static_cast<Key>((std::int64_t{low} + high) >> 1);
    const std::size_t found = HWY_DYNAMIC_DISPATCH(count_above)(keys, counts, words, middle);
    if (found < count) {
      high = middle;
      above = found;
    } else {
      low = middle + 1;
    }
  }
  std::array<RankedWord, words_max> between;
  const std::size_t left =
      HWY_DYNAMIC_DISPATCH(words_between)(keys, counts, words, low, high, between.data());
  std::sort(between.begin(), between.begin() + static_cast<std::ptrdiff_t>(left),
            [](const RankedWord& a, const RankedWord& b) { return a.key > b.key; });
  // Words of one key follow each other and are tied: all candidates of them come to the threshold.
  std::size_t first = 0;
  for (std::size_t next = 0;; first = next) {
    std::size_t tied_candidates = 0;
    for (; next < left && between[next].key == between[first].key; ++next) {
      tied_candidates += between[next].count;
    }
    if (above + tied_candidates >= count) break;
    above += tied_candidates;
  }
  return {.key = between[first].key, .ties = count - above};
}

/// Returns the words with this fate, made of two codes below `codes`.
WordBits words_of(const Fate* fates, Fate fate, std::size_t codes) noexcept {
  WordBits words;
  for (std::size_t second = 0; second < codes; ++second, fates += codes) {
    std::uint8_t* const bytes = words.bytes[second / 8].data();
    const auto bit = static_cast<std::uint8_t>(1U << second % 8);
    for (std::size_t first = 0; first < codes; ++first) {
      bytes[first] |= fates[first] == fate ? bit : std::uint8_t{0};
    }
  }
  return words;
}

/// As write_chosen() for all candidates, of two sub-spaces.
void write_chosen_by_bits(const PqSelect& op, std::size_t head, const Fate* fates,
                          ChosenIds out) noexcept {
  const WordBits chosen_words = words_of(fates, chosen, op.pq.centroids());
  const WordBits tied_words = words_of(fates, tied, op.pq.centroids());
  for_each_codes(op, head, 64, [&](const CodePlanes& planes, std::size_t begin, std::size_t count) {
    std::uint64_t kept = look_up(chosen_words, planes, count);
    if (out.ties > 0) {
      std::uint64_t ties = look_up(tied_words, planes, count);
      for (; ties != 0 && out.ties > 0; ties &= ties - 1, --out.ties) kept |= ties & -ties;
    }
    const auto first_id = static_cast<std::uint32_t>(op.common.candidates.begin + begin);
    for (; kept != 0; kept &= kept - 1) {
      *out.ids++ = first_id + static_cast<std::uint32_t>(__builtin_ctzll(kept));
    }
  });
}

}  // namespace

bool has_few_words(const PqSelect& op) noexcept {
  return op.pq.subspaces <= 2 && op.pq.bits >= code_bits_min && word_bits(op) <= word_bits_max &&
         op.common.candidates.size() >= padded_words(op);
}

void select_by_words(const PqSelect& op, std::size_t head) noexcept {
  const SelectCommon& common = op.common;
  const std::size_t count = common.wanted(head);
  common.id_count[head] = static_cast<std::uint32_t>(count);
  if (count == 0) return;
  const std::size_t group = common.shape.group();
  const std::size_t stride = (common.candidates.size() + 63) / 64 * 64;
  const std::size_t words = padded_words(op);
  float* logits = common.scratch + head * (group + 1) * stride;
  std::array<std::uint32_t, words_max> counts;
  count_words(op, head, counts.data());
  for (std::size_t q = 0; q < group; ++q) {
    write_word_logits(op, head * group + q, counts.data(), logits + q * words);
  }
  float* weights = logits;
  if (group > 1) {
    weights = logits + group * words;
    reduce_group(
        {.rows = logits, .group = group, .stride = words, .size = words, .counts = counts.data()},
        common.reduction, weights);
  }
  std::array<Key, words_max> keys;
  HWY_DYNAMIC_DISPATCH(write_keys)(weights, words, keys.data());
  Threshold threshold{.key = lowest_key, .ties = count};
  if (count < common.candidates.size()) {
    threshold = find_threshold(keys.data(), counts.data(), words, count);
  }
  std::array<Fate, words_max> fates;
  for (std::size_t w = 0; w < words; ++w) {
    const Fate otherwise = keys[w] == threshold.key ? tied : left_out;
    fates[w] = keys[w] > threshold.key ? chosen : otherwise;
  }
  ChosenIds out{.ties = threshold.ties, .ids = common.ids + head * common.id_stride};
  if (looks_up_word_bits() && op.pq.subspaces == 2) {
    return write_chosen_by_bits(op, head, fates.data(), out);
  }
  for_each_block(op, head, [&](const WordBlock& block) {
    const auto first_id = static_cast<std::uint32_t>(common.candidates.begin + block.begin);
    HWY_DYNAMIC_DISPATCH(write_chosen)(block, fates.data(), first_id, out);
  });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
