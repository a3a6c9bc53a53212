// Pages whose contents follow from their keys, and one call to put or get one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/rng.hpp"
#include "terrace/core/store.hpp"

namespace terrace::offload {

using Bytes = std::vector<std::byte>;

inline constexpr Duration patience = std::chrono::minutes(10);
inline constexpr std::uint64_t file_bytes = 2 << 20;

/// The bytes of a page in version `version`. A page has one size for ever.
inline Bytes content(std::uint64_t key, std::uint64_t version) {
  Rng rng(version, {key});
  Bytes bytes(1 + Rng(key).below(20'000));
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

inline PageRequest request(PageVerb verb, std::uint64_t key, Bytes& bytes) {
  return {
      .verb = verb, .key = {.low = key}, .data = bytes.data(), .bytes = bytes.size(), .status = {}};
}

inline void run(Store& store, std::span<PageRequest> batch) {
  const auto ticket = store.submit(batch);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->done.wait(patience));
}

inline Status run_one(Store& store, PageVerb verb, std::uint64_t key, Bytes& bytes) {
  PageRequest one = request(verb, key, bytes);
  run(store, {&one, 1});
  return one.status;
}
inline Status put(Store& store, std::uint64_t key, std::uint64_t version) {
  Bytes bytes = content(key, version);
  return run_one(store, PageVerb::put, key, bytes);
}
inline Status erase(Store& store, std::uint64_t key) {
  Bytes none;
  return run_one(store, PageVerb::erase, key, none);
}
/// Returns what is there, or why nothing is.
inline Result<Bytes> get(Store& store, std::uint64_t key) {
  Bytes bytes(content(key, 0).size());
  TERRACE_TRY(run_one(store, PageVerb::get, key, bytes));
  return bytes;
}

/// Gets some bytes of a page.
inline Result<Bytes> get_part(Store& store, std::uint64_t key, std::size_t offset,
                              std::size_t count) {
  Bytes bytes(count);
  PageRequest one = request(PageVerb::get_part, key, bytes);
  one.offset = offset;
  run(store, {&one, 1});
  TERRACE_TRY(one.status);
  return bytes;
}

}  // namespace terrace::offload
