#include "nvme/open_pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "harness/samples.hpp"
#include "nvme/nameless_file.hpp"
#include "terrace/offload/nvme_store.hpp"

namespace terrace::bench {
namespace {

using offload::NvmeStore;

constexpr Duration opening_patience = std::chrono::minutes(5);
constexpr std::uint64_t opening_batch_pages = 10'000;

/// A page is its own number.
PageRequest request(PageVerb verb, std::uint64_t& page) {
  return {.verb = verb,
          .key = {.low = page},
          .data = reinterpret_cast<std::byte*>(&page),
          .bytes = sizeof page,
          .status = {}};
}

Status run(NvmeStore& store, std::vector<PageRequest>& batch) {
  TERRACE_ASSIGN(const StoreTicket ticket, store.submit(batch));
  TERRACE_TRY(ticket.done.wait(opening_patience));
  for (const PageRequest& each : batch) TERRACE_TRY(each.status);
  return {};
}

Status fill(NvmeStore& store, std::uint64_t pages) {
  std::vector<std::uint64_t> numbers(opening_batch_pages);
  for (std::uint64_t first = 0; first < pages; first += opening_batch_pages) {
    std::vector<PageRequest> batch;
    for (std::uint64_t i = 0; i < std::min(opening_batch_pages, pages - first); ++i) {
      numbers[i] = first + i;
      batch.push_back(request(PageVerb::put, numbers[i]));
    }
    TERRACE_TRY(run(store, batch));
  }
  return {};
}

Status check(NvmeStore& store, std::uint64_t pages) {
  if (store.usage().pages != pages) {
    return fail(Errc::corrupt, "{} pages of {} are there", store.usage().pages, pages);
  }
  for (std::uint64_t page = 0; page < pages; page += pages / 100) {
    std::uint64_t found = page;
    std::vector<PageRequest> batch{request(PageVerb::get, found)};
    TERRACE_TRY(run(store, batch));
    if (found != page) return fail(Errc::corrupt, "page {} is {}", page, found);
  }
  return {};
}

Status measure(const std::string& folder, std::uint64_t pages, Row& row) {
  constexpr std::uint64_t page_bytes = offload::StorageFile::alignment;
  const std::uint64_t bytes = pages * page_bytes + pages * page_bytes / 32 + (1 << 20);
  row.parameters["pages"] = pages;
  row.parameters["file_bytes"] = bytes;
  TERRACE_ASSIGN(const NamelessFile file, NamelessFile::create(folder, bytes));
  const offload::NvmeStoreOptions options{.file = {.path = file.path()}, .pages_max = pages};
  {
    TERRACE_ASSIGN(const auto store, NvmeStore::open(options));
    TERRACE_TRY(fill(*store, pages));
  }
  std::vector<double> samples;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    TERRACE_ASSIGN(const auto store, NvmeStore::open(options));
    samples.push_back(seconds(std::chrono::steady_clock::now() - begin));
    TERRACE_TRY(check(*store, pages));
  }
  put_samples(row, samples);
  return {};
}

}  // namespace

Question open_question(const std::string& folder, bool quick) {
  const std::uint64_t pages = quick ? 2'000 : 1'000'000;
  Question asked{.name = fmt::format("nvme_open_{}_pages", pages), .unit = "s", .prepare = {}};
  asked.count = [folder, pages](Row& row) { return measure(folder, pages, row); };
  return asked;
}

}  // namespace terrace::bench
