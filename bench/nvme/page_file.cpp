#include "nvme/page_file.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

#include "harness/cpu_seconds.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/aligned_bytes.hpp"

namespace terrace::bench {
namespace {

using offload::FileQueue;
using offload::FileTransfer;
using offload::FinishedTransfer;
using offload::StorageFile;

constexpr std::size_t block = StorageFile::alignment;
constexpr Duration patience = std::chrono::minutes(5);
using Words = std::array<std::uint64_t, block / sizeof(std::uint64_t)>;

/// The words of each block after its first word, which has the numbers of the block and the round.
const Words& words_of_all() {
  static const Words words = [] {
    Words made{};
    Rng rng(5);
    std::ranges::generate(made, rng);
    return made;
  }();
  return words;
}

std::uint64_t first_word(std::uint64_t number, std::uint32_t round) noexcept {
  return number << 32 | round;
}

std::vector<std::uint32_t> order_of_pages(std::size_t count, bool scattered) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  if (scattered) std::shuffle(order.begin(), order.end(), Rng(3));
  return order;
}

}  // namespace

/// Pages on their way, one in each of `depth` places of memory.
class PageFile::Passage {
 public:
  /// The number of a page's first block, which costs no time that would be measured, or all of it.
  enum class Compare : std::uint8_t { number, whole };

  Passage(PageFile& file, const Traffic& traffic)
      : file_(file),
        traffic_(traffic),
        memory_(traffic.depth * traffic.page_bytes),
        order_(order_of_pages(file.bytes() / traffic.page_bytes, traffic.scattered)),
        pages_(traffic.depth) {
    const auto bytes = memory_.span();
    for (std::size_t at = 0; at < bytes.size(); at += block) {
      std::memcpy(bytes.data() + at, words_of_all().data(), block);
    }
  }

  Status open() {
    TERRACE_ASSIGN(queue_, FileQueue::open(file_.file_,
                                           {.depth = traffic_.depth, .memory = {memory_.span()}}));
    file_.engine_ = queue_->engine();
    return {};
  }

  /// Moves one page after the other, the first one again after the last, while `goes_on` says so of
  /// the number that have begun. Returns how many were moved.
  Result<std::uint64_t> go(const std::function<bool(std::uint64_t)>& goes_on, Compare compare) {
    std::vector<FileTransfer> batch;
    std::vector<FinishedTransfer> finished(traffic_.depth);
    std::uint64_t begun = 0;
    for (std::size_t place = 0; place < traffic_.depth && goes_on(begun); ++place) {
      batch.push_back(next(place, begun++));
    }
    std::uint64_t done = 0;
    const Deadline deadline(patience);
    while (done < begun) {
      if (!batch.empty()) TERRACE_TRY(queue_->submit(batch));
      batch.clear();
      const std::size_t count = queue_->reap(finished, deadline.left());
      if (count == 0 && deadline.left() == Duration{}) {
        return fail(Errc::not_ready, "the disk answers no more");
      }
      for (const FinishedTransfer& each : std::span(finished).first(count)) {
        TERRACE_TRY(each.status);
        if (!traffic_.writes) TERRACE_TRY(check(each.tag, compare));
        ++done;
        if (goes_on(begun)) batch.push_back(next(each.tag, begun++));
      }
    }
    return done;
  }

  [[nodiscard]] std::size_t page_count() const noexcept { return order_.size(); }

 private:
  FileTransfer next(std::size_t place, std::uint64_t number) {
    const std::uint64_t page = order_[number % order_.size()];
    pages_[place] = page;
    std::byte* const data = memory_.span().data() + place * traffic_.page_bytes;
    if (traffic_.writes) {
      for (std::size_t at = 0; at < traffic_.page_bytes; at += block) {
        const std::uint64_t block_number = (page * traffic_.page_bytes + at) / block;
        file_.rounds_[block_number] = file_.round_;
        const std::uint64_t word = first_word(block_number, file_.round_);
        std::memcpy(data + at, &word, sizeof word);
      }
    }
    return {.direction = traffic_.writes ? FileTransfer::Direction::write  //
                                         : FileTransfer::Direction::read,
            .data = data,
            .bytes = traffic_.page_bytes,
            .offset = page * traffic_.page_bytes,
            .tag = place};
  }

  [[nodiscard]] Status check(std::size_t place, Compare compare) const {
    const std::size_t compared = compare == Compare::whole ? traffic_.page_bytes : block;
    const std::byte* const data = memory_.span().data() + place * traffic_.page_bytes;
    const std::byte* const words = reinterpret_cast<const std::byte*>(words_of_all().data());
    for (std::size_t at = 0; at < compared; at += block) {
      const std::uint64_t number = (pages_[place] * traffic_.page_bytes + at) / block;
      const std::uint64_t expected = first_word(number, file_.rounds_[number]);
      constexpr std::size_t rest = sizeof expected;
      const bool same = std::memcmp(data + at, &expected, sizeof expected) == 0 &&
                        (compare == Compare::number ||
                         std::memcmp(data + at + rest, words + rest, block - rest) == 0);
      if (!same) return fail(Errc::corrupt, "block {} is not what was written", number);
    }
    return {};
  }

  PageFile& file_;
  Traffic traffic_;
  offload::AlignedBytes memory_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> pages_;  ///< by place: which page is on its way
  std::unique_ptr<FileQueue> queue_;
};

Result<std::unique_ptr<PageFile>> PageFile::create(const std::string& folder, std::uint64_t bytes) {
  TERRACE_ASSIGN(NamelessFile nameless, NamelessFile::create(folder, bytes));
  TERRACE_ASSIGN(StorageFile storage, StorageFile::open({.path = nameless.path()}));
  std::unique_ptr<PageFile> file(new PageFile(std::move(nameless), std::move(storage)));
  file->rounds_.resize(bytes / block);
  TERRACE_TRY(file->pass(/*writes=*/true));
  TERRACE_TRY(file->pass(/*writes=*/false));
  return file;
}

Status PageFile::pass(bool writes) {
  constexpr std::size_t page_bytes = std::size_t{1} << 20;
  Passage passage(*this, {.writes = writes, .page_bytes = page_bytes, .depth = 8});
  TERRACE_TRY(passage.open());
  const std::size_t count = passage.page_count();
  return passage.go([count](std::uint64_t begun) { return begun < count; }, Passage::Compare::whole)
      .map([](std::uint64_t) {});
}

Result<TrafficFigures> PageFile::run(const Traffic& traffic, Duration time) {
  if (traffic.writes) ++round_;
  Passage passage(*this, traffic);
  TERRACE_TRY(passage.open());
  const double cpu = cpu_seconds();
  const auto begin = std::chrono::steady_clock::now();
  const auto goes_on = [begin, time](std::uint64_t) {
    return std::chrono::steady_clock::now() - begin < time;
  };
  TERRACE_ASSIGN(const std::uint64_t count, passage.go(goes_on, Passage::Compare::number));
  const double elapsed = seconds(std::chrono::steady_clock::now() - begin);
  const auto requests = static_cast<double>(std::max<std::uint64_t>(count, 1));
  const TrafficFigures figures{
      .bytes_per_second = requests * static_cast<double>(traffic.page_bytes) / elapsed,
      .cpu_seconds_per_request = (cpu_seconds() - cpu) / requests};
  TERRACE_TRY(pass(/*writes=*/false));
  return figures;
}

}  // namespace terrace::bench
