// Terrace's store on a disk, as a process that bench/peers/disk.py asks:
//
//   disk_terrace plain|registered FOLDER PAGE_BYTES PAGES BATCH_PAGES BATCHES
//
// Memory of the pages is registered with the kernel or not; the runtime does not register it. The
// first line of output is the version. Then each line of input has an answer, a line of JSON:
//
//   write    puts all pages of a new file in order: seconds, CPU seconds of the process
//   read     gets them in a scattered order: the same
//   check    whether what was read last is what was written
//   bytes N  64 bytes from the middle of page N, by which it is found in the file
//   again N  gets page N alone: the error, or none; and whether it is what was written
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "harness/cpu_seconds.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/core/version.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/offload/nvme_store.hpp"

namespace terrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using offload::NvmeStore;

constexpr Duration patience = std::chrono::minutes(5);
constexpr std::size_t mark_bytes = 64;

struct TurnsOptions {
  std::string folder;
  std::size_t page_bytes = 0;
  std::size_t pages = 0;
  std::size_t batch_pages = 0;  ///< of a batch
  std::size_t batches = 0;      ///< under way
  bool registered = false;      ///< whether the kernel is told of the memory once
};

/// Numbers of all pages, the first after the last in a stride that leaves out none.
std::vector<std::size_t> scattered(std::size_t pages) {
  std::size_t stride = std::max<std::size_t>(pages * 5 / 8, 1);
  while (std::gcd(stride, pages) != 1) ++stride;
  std::vector<std::size_t> order(pages);
  for (std::size_t i = 0; i < pages; ++i) order[i] = i * stride % pages;
  return order;
}

/// A store in a file of its own, with memory for what is written and what is read.
class Pages {
 public:
  static Result<std::unique_ptr<Pages>> open(const TurnsOptions& options) {
    std::unique_ptr<Pages> pages(new Pages(options));
    offload::NvmeStoreOptions chosen;
    chosen.file.path = options.folder + "/pages";
    // Room for the directory, and for pages that are rounded up.
    chosen.file.bytes = options.pages * options.page_bytes * 9 / 8 + (std::size_t{32} << 20);
    if (options.registered) {
      chosen.queue.memory = {pages->written_.span(), pages->read_.span()};
    }
    TERRACE_ASSIGN(pages->store_, NvmeStore::open(chosen));
    return pages;
  }

  /// Answers a line.
  Result<Json> answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    std::size_t page = 0;
    words >> what >> page;
    if (page >= options_.pages) return fail(Errc::invalid_argument, "there is no page {}", page);
    if (what == "write") {
      std::vector<std::size_t> order(options_.pages);
      std::iota(order.begin(), order.end(), std::size_t{0});
      return timed(PageVerb::put, order);
    }
    if (what == "read") {
      std::memset(read_.data(), 0, read_.span().size());
      return timed(PageVerb::get, scattered(options_.pages));
    }
    if (what == "check") return Json{{"same", std::ranges::equal(written_.span(), read_.span())}};
    if (what == "bytes") return Json{{"hex", mark_of(page)}};
    if (what == "again") return again(page);
    return fail(Errc::invalid_argument, "{} is none of write, read, check, bytes, again", what);
  }

  [[nodiscard]] std::string description() const {
    const offload::NvmeStoreState state = store_->state();
    return fmt::format("{} ({}{}{})", version(), state.engine, state.direct ? ", O_DIRECT" : "",
                       state.registered_bytes > 0 ? ", registered memory" : "");
  }

 private:
  explicit Pages(const TurnsOptions& options)
      : options_(options),
        written_(options.pages * options.page_bytes),
        read_(options.pages * options.page_bytes) {
    Rng rng(7);
    for (std::size_t at = 0; at < written_.span().size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = rng();
      std::memcpy(written_.data() + at, &word, sizeof word);
    }
  }

  Result<Json> timed(PageVerb verb, std::span<const std::size_t> order) {
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_TRY(move(verb, order));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return Json{{"seconds", elapsed.count()}, {"cpu_seconds", cpu_seconds() - cpu}};
  }

  struct Batch {
    std::vector<PageRequest> requests;
    StoreTicket ticket = {};
  };

  /// Moves pages in order; the oldest batch is waited for when as many are under way as may be.
  Status move(PageVerb verb, std::span<const std::size_t> order) {
    std::vector<Batch> under_way(options_.batches);
    for (std::size_t turn = 0; !order.empty(); ++turn) {
      Batch& batch = under_way[turn % under_way.size()];
      TERRACE_TRY(end(batch));
      const auto now = order.first(std::min(options_.batch_pages, order.size()));
      order = order.subspan(now.size());
      for (const std::size_t page : now) batch.requests.push_back(request(verb, page));
      TERRACE_ASSIGN(batch.ticket, store_->submit(batch.requests));
    }
    for (Batch& batch : under_way) TERRACE_TRY(end(batch));
    return {};
  }

  static Status end(Batch& batch) {
    if (batch.requests.empty()) return {};
    TERRACE_TRY(batch.ticket.done.wait(patience));
    for (const PageRequest& request : batch.requests) TERRACE_TRY(request.status);
    batch.requests.clear();
    return {};
  }

  [[nodiscard]] PageRequest request(PageVerb verb, std::size_t page) const {
    std::byte* const memory = verb == PageVerb::put ? written_.data() : read_.data();
    return {.verb = verb,
            .key = {.low = page},
            .data = memory + page * options_.page_bytes,
            .bytes = options_.page_bytes,
            .status = {}};
  }

  [[nodiscard]] std::string mark_of(std::size_t page) const {
    const std::byte* const at =
        written_.data() + page * options_.page_bytes + options_.page_bytes / 2;
    std::string hex;
    for (const std::byte each : std::span(at, mark_bytes)) {
      hex += fmt::format("{:02x}", std::to_integer<unsigned>(each));
    }
    return hex;
  }

  Result<Json> again(std::size_t page) {
    const std::size_t begin = page * options_.page_bytes;
    std::memset(read_.data() + begin, 0, options_.page_bytes);
    const Status status = move(PageVerb::get, std::span(&page, 1));
    const bool same =
        std::memcmp(read_.data() + begin, written_.data() + begin, options_.page_bytes) == 0;
    return Json{{"error", status ? Json() : Json(status.error().message())}, {"same", same}};
  }

  TurnsOptions options_;
  offload::AlignedBytes written_;
  offload::AlignedBytes read_;
  std::unique_ptr<NvmeStore> store_;  // last: the others outlast its transfers
};

Status take_turns(const TurnsOptions& options) {
  TERRACE_ASSIGN(const auto pages, Pages::open(options));
  std::cout << Json(pages->description()) << "\n" << std::flush;
  for (std::string line; std::getline(std::cin, line);) {
    TERRACE_ASSIGN(const Json answer, pages->answer(line));
    std::cout << answer << "\n" << std::flush;
  }
  return {};
}

}  // namespace
}  // namespace terrace::bench

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  const auto number = [&words](std::size_t at) { return std::strtoull(words[at].c_str(), {}, 10); };
  const bool right = words.size() == 6 && (words[0] == "plain" || words[0] == "registered") &&
                     number(2) > 0 && number(2) % 4096 == 0 && number(3) > 0 && number(4) > 0 &&
                     number(5) > 0;
  if (!right) {
    fmt::print(stderr,
               "disk_terrace plain|registered FOLDER PAGE_BYTES PAGES BATCH_PAGES BATCHES\n");
    return 2;
  }
  const terrace::Status done = terrace::bench::take_turns({.folder = words[1],
                                                           .page_bytes = number(2),
                                                           .pages = number(3),
                                                           .batch_pages = number(4),
                                                           .batches = number(5),
                                                           .registered = words[0] == "registered"});
  if (!done) fmt::print(stderr, "disk_terrace: {}\n", done.error().message());
  return done ? 0 : 1;
}
