// A daemon in this process, with clients of it, for tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/temporary_folder.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {

inline constexpr tiers::PartName rows{.kind = tiers::PartKind::rows, .layer = 3};
inline constexpr tiers::PartName state{.kind = tiers::PartKind::state};
inline constexpr tiers::Digest some_root{std::byte{1}};
inline constexpr std::uint32_t chunk_tokens = 32;
inline constexpr std::size_t row_bytes = 3000;

inline std::vector<tiers::ChunkKey> some_keys(std::size_t count, std::uint64_t first = 1) {
  std::vector<tiers::ChunkKey> keys;
  for (std::uint64_t i = 0; i < count; ++i) keys.push_back({.high = first + i, .low = 17});
  return keys;
}

/// The bytes of a chunk's rows as tests publish them: other ones for each key and salt.
inline std::vector<std::byte> rows_of(const tiers::ChunkKey& key, std::uint64_t variant = 0) {
  std::vector<std::byte> bytes(row_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(key.high * 31 + variant * 101 + i / 7);
  }
  return bytes;
}

/// A folder, a file for chunks and options that fit both.
class NodePlace {
 public:
  [[nodiscard]] DaemonOptions options() const {
    DaemonOptions options;
    options.socket = socket();
    options.file = {
        .path = folder_ / "chunks", .bytes = std::uint64_t{16} << 20, .page_bytes = 4096};
    options.memory = std::uint64_t{1} << 20;
    options.threads = 2;
    return options;
  }
  [[nodiscard]] std::string socket() const { return folder_ / "terraced.sock"; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

  [[nodiscard]] std::unique_ptr<DaemonClient> client(std::string salt = {}) const {
    return DaemonClient::create({.socket = socket(),
                                 .name = "test",
                                 .salt = tiers::TenantSalt(std::move(salt)),
                                 .deadline = std::chrono::seconds{60},
                                 .pause_first = {},
                                 .pause_longest = {}})
        .value();
  }

 private:
  TemporaryFolder folder_;
};

/// A daemon that serves until this object goes.
class RunningDaemon {
 public:
  explicit RunningDaemon(DaemonOptions options) {
    options.log = [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_ += line;
      lines_ += '\n';
    };
    auto opened = Daemon::open(options);
    if (!opened) throw std::runtime_error(std::string(opened.error().message()));
    daemon_ = *std::move(opened);
    thread_ = std::thread([this] { served_ = daemon_->serve(); });
  }
  RunningDaemon(const RunningDaemon&) = delete;
  RunningDaemon& operator=(const RunningDaemon&) = delete;
  ~RunningDaemon() {
    daemon_->stop();
    thread_.join();
    EXPECT_TRUE(served_) << served_.error().message();
  }

  Daemon* operator->() { return daemon_.get(); }
  [[nodiscard]] std::string lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::string lines_;
  std::unique_ptr<Daemon> daemon_;
  Status served_;
  std::thread thread_;
};

/// Publishes a chunk of two parts. `variant`: of its rows' bytes.
inline Result<tiers::Published> publish(DaemonClient& client, const tiers::ChunkKey& key,
                                        DaemonLease* lease = nullptr, std::uint64_t variant = 0) {
  const std::vector<std::byte> bytes = rows_of(key, variant);
  const std::array<std::byte, 1> tail{std::byte(key.low)};
  const std::array parts{DaemonPartBytes{rows, bytes}, DaemonPartBytes{state, tail}};
  return client.publish({.root = some_root, .key = key, .tokens = chunk_tokens}, parts, lease);
}

inline DaemonLookUp find(DaemonClient& client, std::span<const tiers::ChunkKey> keys) {
  return client.find({.root = some_root, .keys = keys, .tokens = keys.size() * chunk_tokens});
}

/// Returns the rows of a chunk of a look-up.
inline Result<std::vector<std::byte>> read_rows(DaemonClient& client, const DaemonLookUp& found,
                                                std::uint32_t chunk) {
  const DaemonPartRequest wanted{.chunk = chunk, .name = rows};
  TERRACE_ASSIGN(const auto read, client.read(found.lease, {&wanted, 1}));
  if (!read.front()) return tl::unexpected(read.front().error());
  return std::vector<std::byte>(read.front()->begin(), read.front()->end());
}

inline std::uint64_t counter(DaemonClient& client, std::string_view name) {
  const auto counters = client.stats();
  EXPECT_TRUE(counters) << counters.error().message();
  for (const DaemonCounter& each : counters.value_or(std::vector<DaemonCounter>{})) {
    if (each.name == name) return each.value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

/// Asks until a counter has a value: what a client leaves is given back once the daemon has seen
/// that it is gone. A counter that never has it hangs, which fails.
inline void wait_for_counter(DaemonClient& client, std::string_view name, std::uint64_t value) {
  while (counter(client, name) != value && !::testing::Test::HasFailure()) {
  }
}

}  // namespace terrace::node
