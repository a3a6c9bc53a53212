#include "nvme/store_traffic.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "harness/samples.hpp"
#include "nvme/nameless_file.hpp"
#include "nvme/page_file.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/offload/nvme_store.hpp"

namespace terrace::bench {
namespace {

using offload::NvmeStore;

constexpr Duration store_patience = std::chrono::minutes(5);
constexpr std::size_t part_bytes = 64 << 10;  // of a page: that are moved and checked at a time
constexpr std::size_t store_batch_requests = 8;
constexpr std::size_t depth = 32;   // of the disk: as many more wait for their turn
constexpr std::size_t batches = 8;  // under way

/// The requests of a question: for pages, or for parts of larger pages.
struct Movement {
  PageVerb verb = PageVerb::get;
  std::uint64_t parts_of_page = 1;
};

/// A store with pages whose parts begin with their numbers.
class StoreTraffic {
 public:
  static Result<std::unique_ptr<StoreTraffic>> create(const std::string& folder,
                                                      std::uint64_t parts_of_page,
                                                      std::uint64_t pages) {
    const std::uint64_t bytes = 2 * pages * parts_of_page * part_bytes + (4 << 20);
    TERRACE_ASSIGN(NamelessFile file, NamelessFile::create(folder, bytes));
    std::unique_ptr<StoreTraffic> traffic(new StoreTraffic(std::move(file), parts_of_page, pages));
    offload::NvmeStoreOptions options;
    options.file.path = traffic->file_.path();
    options.part_bytes = part_bytes;
    options.queue.depth = depth;
    options.queue.memory = {traffic->memory_.span()};
    TERRACE_ASSIGN(traffic->store_, NvmeStore::open(options));
    std::uint64_t next = 0;
    TERRACE_TRY(traffic->move(PageVerb::put, [&] { return next < pages ? next++ : none; }));
    return traffic;
  }

  /// Returns bytes a second.
  Result<double> run(PageVerb verb, Duration time) {
    const std::uint64_t count = verb == PageVerb::get_part ? pages_ * parts_of_page_ : pages_;
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_ASSIGN(const std::uint64_t moved, move(verb, [&] {
                     const bool goes_on = std::chrono::steady_clock::now() - begin < time;
                     return goes_on ? rng_.below(count) : none;
                   }));
    return static_cast<double>(moved) / seconds(std::chrono::steady_clock::now() - begin);
  }

 private:
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  struct Batch {
    std::vector<PageRequest> requests;
    StoreTicket ticket = {};
  };

  StoreTraffic(NamelessFile file, std::uint64_t parts_of_page, std::uint64_t pages)
      : file_(std::move(file)),
        parts_of_page_(parts_of_page),
        pages_(pages),
        memory_(batches * store_batch_requests * parts_of_page * part_bytes) {}

  /// Moves pages or parts as `next` names them, up to none. Returns how many bytes.
  Result<std::uint64_t> move(PageVerb verb, const std::function<std::uint64_t()>& next) {
    std::array<Batch, batches> under_way;
    std::uint64_t moved = 0;
    bool goes_on = true;
    const auto is_under_way = [](const Batch& batch) { return !batch.requests.empty(); };
    for (std::size_t turn = 0; goes_on || std::ranges::any_of(under_way, is_under_way); ++turn) {
      Batch& batch = under_way[turn % batches];
      TERRACE_ASSIGN(const std::uint64_t ended, end(batch));
      moved += ended;
      batch.requests.clear();
      if (!goes_on) continue;
      const std::size_t each = parts_of_page_ * part_bytes;
      std::byte* data = memory_.data() + turn % batches * store_batch_requests * each;
      for (std::size_t i = 0; i < store_batch_requests && goes_on; ++i, data += each) {
        const std::uint64_t number = next();
        goes_on = number != none;
        if (goes_on) batch.requests.push_back(request(verb, number, data));
      }
      TERRACE_ASSIGN(batch.ticket, store_->submit(batch.requests));
    }
    return moved;
  }

  PageRequest request(PageVerb verb, std::uint64_t number, std::byte* data) const {
    if (verb == PageVerb::get_part) {
      return {.verb = verb,
              .key = {.low = number / parts_of_page_},
              .data = data,
              .bytes = part_bytes,
              .offset = number % parts_of_page_ * part_bytes,
              .status = {}};
    }
    for (std::uint64_t part = 0; verb == PageVerb::put && part < parts_of_page_; ++part) {
      const std::uint64_t part_number = number * parts_of_page_ + part;
      std::memcpy(data + part * part_bytes, &part_number, sizeof part_number);
    }
    return {.verb = verb,
            .key = {.low = number},
            .data = data,
            .bytes = parts_of_page_ * part_bytes,
            .status = {}};
  }

  /// Waits for a batch. Returns how many bytes it has moved.
  Result<std::uint64_t> end(Batch& batch) {
    if (batch.requests.empty()) return std::uint64_t{0};
    TERRACE_TRY(batch.ticket.done.wait(store_patience));
    std::uint64_t bytes = 0;
    for (const PageRequest& request : batch.requests) {
      TERRACE_TRY(request.status);
      const std::uint64_t part = request.key.low * parts_of_page_ + request.offset / part_bytes;
      if (std::memcmp(request.data, &part, sizeof part) != 0) {
        return fail(Errc::corrupt, "part {} is another one", part);
      }
      bytes += request.bytes;
    }
    return bytes;
  }

  NamelessFile file_;
  std::uint64_t parts_of_page_;
  std::uint64_t pages_;
  offload::AlignedBytes memory_;
  std::unique_ptr<NvmeStore> store_;
  Rng rng_{11};
};

Status measure(const std::string& folder, const Movement& movement, bool quick, Row& row) {
  const std::uint64_t parts = quick ? 128 : 4096;
  const Duration time = std::chrono::milliseconds(quick ? 20 : 400);
  TERRACE_ASSIGN(const auto ours, StoreTraffic::create(folder, movement.parts_of_page,
                                                       parts / movement.parts_of_page));
  TERRACE_ASSIGN(const auto alone, PageFile::create(folder, parts * part_bytes));
  std::vector<double> rates;
  std::vector<double> alone_rates;
  for (int round = 0; round < (quick ? 1 : 5); ++round) {
    TERRACE_ASSIGN(const double rate, ours->run(movement.verb, time));
    rates.push_back(rate);
    TERRACE_ASSIGN(const TrafficFigures figures,
                   alone->run({.writes = movement.verb == PageVerb::put,
                               .scattered = true,
                               .page_bytes = part_bytes,
                               .depth = depth},
                              time));
    alone_rates.push_back(figures.bytes_per_second);
  }
  put_samples(row, rates);
  row.peer = PeerFigure{"the file alone", alone->engine(), median(alone_rates)};
  return {};
}

}  // namespace

std::vector<Question> store_questions(const std::string& folder, bool quick) {
  const std::pair<const char*, Movement> movements[] = {
      {"nvme_store_get_65536", {.verb = PageVerb::get}},
      {"nvme_store_get_part_65536", {.verb = PageVerb::get_part, .parts_of_page = 16}},
      {"nvme_store_put_65536", {.verb = PageVerb::put}}};
  std::vector<Question> all;
  for (const auto& [name, movement] : movements) {
    const std::uint64_t page_bytes = movement.parts_of_page * part_bytes;
    Question asked{
        .name = name,
        .unit = "B/s",
        .better = Better::higher,
        .parameters = {{"bytes", part_bytes}, {"page_bytes", page_bytes}, {"depth", depth}},
        .prepare = {}};
    asked.count = [folder, movement, quick](Row& row) {
      return measure(folder, movement, quick, row);
    };
    all.push_back(std::move(asked));
  }
  return all;
}

}  // namespace terrace::bench
