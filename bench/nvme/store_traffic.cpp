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
constexpr std::size_t store_page_bytes = 64 << 10;
constexpr std::size_t store_batch_pages = 8;
constexpr std::size_t depth = 32;   // of the disk: as many more wait for their turn
constexpr std::size_t batches = 8;  // under way

/// A store with pages that begin with their numbers.
class StoreTraffic {
 public:
  static Result<std::unique_ptr<StoreTraffic>> create(const std::string& folder,
                                                      std::uint64_t pages) {
    const std::uint64_t bytes = 2 * pages * store_page_bytes + (4 << 20);
    TERRACE_ASSIGN(NamelessFile file, NamelessFile::create(folder, bytes));
    std::unique_ptr<StoreTraffic> traffic(new StoreTraffic(std::move(file), pages));
    offload::NvmeStoreOptions options;
    options.file.path = traffic->file_.path();
    options.queue.depth = depth;
    options.queue.memory = {traffic->memory_.span()};
    TERRACE_ASSIGN(traffic->store_, NvmeStore::open(options));
    std::uint64_t next = 0;
    TERRACE_TRY(traffic->move(PageVerb::put, [&] { return next < pages ? next++ : pages; }));
    return traffic;
  }

  /// Returns bytes a second.
  Result<double> run(PageVerb verb, Duration time) {
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_ASSIGN(const std::uint64_t moved, move(verb, [&] {
                     const bool goes_on = std::chrono::steady_clock::now() - begin < time;
                     return goes_on ? rng_.below(pages_) : pages_;
                   }));
    const double elapsed = seconds(std::chrono::steady_clock::now() - begin);
    return static_cast<double>(moved * store_page_bytes) / elapsed;
  }

 private:
  struct Batch {
    std::vector<PageRequest> requests;
    StoreTicket ticket = {};
  };

  StoreTraffic(NamelessFile file, std::uint64_t pages)
      : file_(std::move(file)),
        pages_(pages),
        memory_(batches * store_batch_pages * store_page_bytes) {}

  /// Moves pages as `next` names them, until it names no page. Returns how many.
  Result<std::uint64_t> move(PageVerb verb, const std::function<std::uint64_t()>& next) {
    std::array<Batch, batches> under_way;
    std::uint64_t moved = 0;
    bool goes_on = true;
    for (std::size_t turn = 0; goes_on || !under_way[turn % batches].requests.empty(); ++turn) {
      Batch& batch = under_way[turn % batches];
      TERRACE_TRY(end(batch));
      moved += batch.requests.size();
      batch.requests.clear();
      if (!goes_on) continue;
      std::byte* data = memory_.data() + turn % batches * store_batch_pages * store_page_bytes;
      for (std::size_t i = 0; i < store_batch_pages && goes_on; ++i, data += store_page_bytes) {
        const std::uint64_t page = next();
        goes_on = page < pages_;
        if (!goes_on) break;
        if (verb == PageVerb::put) std::memcpy(data, &page, sizeof page);
        batch.requests.push_back({.verb = verb,
                                  .key = {.low = page},
                                  .data = data,
                                  .bytes = store_page_bytes,
                                  .status = {}});
      }
      TERRACE_ASSIGN(batch.ticket, store_->submit(batch.requests));
    }
    return moved;
  }

  Status end(Batch& batch) {
    if (batch.requests.empty()) return {};
    TERRACE_TRY(store_->wait(batch.ticket, store_patience));
    for (const PageRequest& request : batch.requests) {
      TERRACE_TRY(request.status);
      if (std::memcmp(request.data, &request.key.low, sizeof request.key.low) != 0) {
        return fail(Errc::corrupt, "page {} is another one", request.key.low);
      }
    }
    return {};
  }

  NamelessFile file_;
  std::uint64_t pages_;
  offload::AlignedBytes memory_;
  std::unique_ptr<NvmeStore> store_;
  Rng rng_{11};
};

Status measure(const std::string& folder, PageVerb verb, bool quick, Row& row) {
  const std::uint64_t pages = quick ? 128 : 4096;
  const Duration time = std::chrono::milliseconds(quick ? 20 : 400);
  TERRACE_ASSIGN(const auto ours, StoreTraffic::create(folder, pages));
  TERRACE_ASSIGN(const auto alone, PageFile::create(folder, pages * store_page_bytes));
  std::vector<double> rates;
  std::vector<double> alone_rates;
  for (int round = 0; round < (quick ? 1 : 5); ++round) {
    TERRACE_ASSIGN(const double rate, ours->run(verb, time));
    rates.push_back(rate);
    TERRACE_ASSIGN(const TrafficFigures figures, alone->run({.writes = verb == PageVerb::put,
                                                             .scattered = true,
                                                             .page_bytes = store_page_bytes,
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
  std::vector<Question> all;
  for (const PageVerb verb : {PageVerb::get, PageVerb::put}) {
    Question asked{.name = verb == PageVerb::get ? "nvme_store_get_65536" : "nvme_store_put_65536",
                   .unit = "B/s",
                   .better = Better::higher,
                   .parameters = {{"bytes", store_page_bytes}, {"depth", depth}},
                   .prepare = {}};
    asked.count = [folder, verb, quick](Row& row) { return measure(folder, verb, quick, row); };
    all.push_back(std::move(asked));
  }
  return all;
}

}  // namespace terrace::bench
