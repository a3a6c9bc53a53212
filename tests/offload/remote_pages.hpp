// Stores on other machines, and pages to put into them.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "redis/redis_server.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/remote_store.hpp"

namespace terrace::offload {

/// To report a fault, and not a slow machine.
inline constexpr Duration long_enough = std::chrono::minutes(2);

using PageBytes = std::vector<std::byte>;

inline PageBytes page_of(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  PageBytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

/// A store in which nothing is late, but what a test wants to be.
inline RemoteStoreOptions patient(const RemoteAddress& address) {
  RemoteStoreOptions options;
  options.server.addresses = {address};
  options.deadline = long_enough;
  options.connect_timeout = long_enough;
  options.retry_first = std::chrono::milliseconds(10);
  options.retry_max = std::chrono::milliseconds(100);
  return options;
}

inline std::unique_ptr<RemoteStore> opened(const RemoteStoreOptions& options) {
  return RemoteStore::open(options).value();
}

/// Carries a batch out.
inline void run_batch(RemoteStore& store, std::span<PageRequest> batch) {
  const auto ticket = store.submit(batch);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->done.wait(long_enough));
}

inline Status put_page(RemoteStore& store, std::uint64_t key, PageBytes page) {
  PageRequest request{.verb = PageVerb::put,
                      .key = {.low = key},
                      .data = page.data(),
                      .bytes = page.size(),
                      .status = {}};
  run_batch(store, {&request, 1});
  return request.status;
}

inline Result<PageBytes> get_page(RemoteStore& store, std::uint64_t key, std::size_t count,
                                  std::size_t offset = 0, PageVerb verb = PageVerb::get) {
  PageBytes page(count);
  PageRequest request{.verb = verb,
                      .key = {.low = key},
                      .data = page.data(),
                      .bytes = count,
                      .offset = offset,
                      .status = {}};
  run_batch(store, {&request, 1});
  if (!request.status) return tl::unexpected(request.status.error());
  return page;
}

inline Status erase_page(RemoteStore& store, std::uint64_t key) {
  PageRequest request{.verb = PageVerb::erase, .key = {.low = key}, .status = {}};
  run_batch(store, {&request, 1});
  return request.status;
}

inline Result<std::size_t> find_page(RemoteStore& store, std::uint64_t key) {
  PageRequest request{.verb = PageVerb::find, .key = {.low = key}, .status = {}};
  run_batch(store, {&request, 1});
  if (!request.status) return tl::unexpected(request.status.error());
  return request.bytes;
}

inline std::string name_of(std::uint64_t key) {
  return fmt::format("terrace:{:016x}{:016x}", 0, key);
}

/// Skips tests where no server can be started.
class RemoteTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!redis::is_installed()) GTEST_SKIP() << "no redis-tools on this machine";
  }
};

}  // namespace terrace::offload
