#include "terrace/offload/store_calls.hpp"

#include <algorithm>
#include <utility>

namespace terrace::offload {
namespace {

/// Requests of one verb, in the order of the keys.
std::vector<PageRequest> requests_for(PageVerb verb, std::span<const PageKey> keys) {
  std::vector<PageRequest> requests;
  requests.reserve(keys.size());
  for (const PageKey& key : keys) requests.push_back({.verb = verb, .key = key});
  return requests;
}

}  // namespace

StoreCalls::~StoreCalls() {
  for (const auto& batch : under_way_) static_cast<void>(batch->ticket.done.wait(deadline_));
  // Where this was the store's last user, the store ends what it is still at, before its requests
  // go.
  store_.reset();
}

void StoreCalls::forget_ended() {
  const std::lock_guard lock(mutex_);
  std::erase_if(under_way_, [](const auto& batch) { return batch->ticket.done.is_set(); });
}

Status StoreCalls::submit(StoreBatch& batch) {
  forget_ended();
  batch.deadline = Deadline(deadline_);
  TERRACE_ASSIGN(batch.ticket, store_->submit(batch.requests, batch.options));
  return {};
}

Status StoreCalls::await(StoreBatch& batch) {
  const Status waited = batch.ticket.done.wait(batch.deadline.left());
  if (!waited) store_->cancel(batch.ticket);
  if (batch.ticket.done.is_set()) return {};
  // The device is still at some of them.
  const std::lock_guard lock(mutex_);
  under_way_.push_back(std::make_shared<const StoreBatch>(std::exchange(batch, {})));
  return waited;
}

Result<std::shared_ptr<const StoreBatch>> StoreCalls::start(StoreBatch batch) {
  forget_ended();
  auto started = std::make_shared<StoreBatch>(std::move(batch));
  TERRACE_ASSIGN(started->ticket, store_->submit(started->requests, started->options));
  const std::lock_guard lock(mutex_);
  under_way_.push_back(started);
  return started;
}

Result<std::vector<std::size_t>> StoreCalls::sizes_of(std::span<const PageKey> keys) {
  StoreBatch batch{.requests = requests_for(PageVerb::find, keys)};
  if (!keys.empty()) TERRACE_TRY(carry_out(batch));
  std::vector<std::size_t> sizes;
  sizes.reserve(keys.size());
  for (const PageRequest& request : batch.requests) {
    sizes.push_back(request.status ? request.bytes : 0);
  }
  return sizes;
}

Result<std::vector<Result<std::vector<std::byte>>>> StoreCalls::read_all(
    std::span<const PageKey> keys) {
  std::vector<Result<std::vector<std::byte>>> pages(keys.size());
  StoreBatch find{.requests = requests_for(PageVerb::find, keys)};
  if (keys.empty()) return pages;
  TERRACE_TRY(carry_out(find));
  const auto memory = std::make_shared<std::vector<std::vector<std::byte>>>(keys.size());
  StoreBatch get{.requests = {}, .memory = memory};
  std::vector<std::size_t> asked;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const PageRequest& found = find.requests[i];
    if (!found.status) {
      pages[i] = tl::unexpected(found.status.error());
      continue;
    }
    std::vector<std::byte>& bytes = (*memory)[i];
    bytes.resize(found.bytes);
    asked.push_back(i);
    get.requests.push_back(
        {.verb = PageVerb::get, .key = keys[i], .data = bytes.data(), .bytes = bytes.size()});
  }
  if (asked.empty()) return pages;
  TERRACE_TRY(carry_out(get));
  for (std::size_t n = 0; n < asked.size(); ++n) {
    const Status& status = get.requests[n].status;
    std::vector<std::byte>& bytes = (*memory)[asked[n]];
    pages[asked[n]] =
        status ? Result<std::vector<std::byte>>(std::move(bytes)) : tl::unexpected(status.error());
  }
  return pages;
}

Result<std::vector<std::byte>> StoreCalls::read(PageKey key) {
  TERRACE_ASSIGN(auto pages, read_all({&key, 1}));
  return std::move(pages.front());
}

Status StoreCalls::write(std::vector<StoredBytes> pages) {
  if (pages.empty()) return {};
  const auto held = std::make_shared<std::vector<StoredBytes>>(std::move(pages));
  StoreBatch batch{.requests = {}, .memory = held};
  for (StoredBytes& page : *held) {
    batch.requests.push_back({.verb = PageVerb::put,
                              .key = page.key,
                              .data = page.bytes.data(),
                              .bytes = page.bytes.size()});
  }
  TERRACE_TRY(carry_out(batch));
  for (const PageRequest& request : batch.requests) TERRACE_TRY(request.status);
  return {};
}

Status StoreCalls::erase(std::span<const PageKey> keys) {
  if (keys.empty()) return {};
  StoreBatch batch{.requests = requests_for(PageVerb::erase, keys)};
  TERRACE_TRY(carry_out(batch));
  for (const PageRequest& request : batch.requests) {
    const bool done = request.status || request.status.error().code == Errc::invalid_argument;
    if (!done) return request.status;
  }
  return {};
}

}  // namespace terrace::offload
