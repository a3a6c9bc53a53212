// Chunks in a store below a library's own, as on another machine: written behind, asked for when
// the library's store lacks them.
//
// Nobody waits for what is written behind: chunks wait in memory, up to a limit, beyond which they
// are left out and counted. A store that does not answer makes its chunks late, and nothing else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "terrace/offload/thread.hpp"
#include "terrace/tiers/chunk_store.hpp"

namespace terrace::tiers {

struct RemoteChunksOptions {
  std::shared_ptr<Store> store = nullptr;
  Duration deadline{};        ///< of each batch that somebody waits for
  Duration write_deadline{};  ///< of each batch that is written; 0 = ten times the other
  /// Most bytes that wait to be written.
  std::uint64_t bytes_behind_max = std::uint64_t{256} << 20;
  /// Most bytes of a chunk that is written or read: a store that others write to may name any size.
  std::uint64_t chunk_bytes_max = std::uint64_t{1} << 30;
};

/// Servers of the Redis protocol that keep chunks.
struct RemoteServers {
  std::string url = {};                         ///< offload::RemoteServer::parse; empty = none
  Duration ttl{};                               ///< that chunks stay there; 0 = no limit
  Duration deadline = std::chrono::seconds{1};  ///< RemoteChunksOptions::deadline
};

struct RemoteCounters {
  std::uint64_t written = 0;   ///< chunks
  std::uint64_t left_out = 0;  ///< chunks that found no room to wait, or could not be written
  std::uint64_t read = 0;      ///< chunks
  std::uint64_t dropped = 0;   ///< chunks that were damaged, or had lost a part
};

/// Threads  safe from any thread
class RemoteChunks {
 public:
  /// Errors   invalid_argument: no store, or no deadline; out_of_memory: no thread
  [[nodiscard]] static Result<std::shared_ptr<RemoteChunks>> create(
      const RemoteChunksOptions& options);
  /// Chunks on servers, which need not be there: connections are opened when they are needed.
  ///
  /// Errors   invalid_argument: the URL, or no deadline; those of offload::RemoteStore::open
  [[nodiscard]] static Result<std::shared_ptr<RemoteChunks>> on(const RemoteServers& servers);
  /// Writes chunks that wait until the deadline, and leaves out the others. The one that is being
  /// written has its own deadline.
  ~RemoteChunks();
  RemoteChunks(const RemoteChunks&) = delete;
  RemoteChunks& operator=(const RemoteChunks&) = delete;

  /// Has a chunk written as soon as those before it are. It waits for nothing. Nothing may change
  /// the parts any more.
  void write_behind(const ChunkKey& key, std::uint32_t tokens,
                    std::shared_ptr<std::vector<PartBytes>> parts);
  /// Waits until no chunk waits to be written. Errors: not_ready past the timeout.
  [[nodiscard]] Status wait_for_writes(Duration timeout);

  /// Returns the manifest of each chunk. Errors: not_ready past the deadline; of a chunk:
  /// invalid_argument: it is not there; corrupt, which drops it; others: it cannot be read now.
  [[nodiscard]] Result<std::vector<Result<Manifest>>> manifests(std::span<const ChunkKey> keys);
  /// Returns all parts of a chunk. One that is damaged, lacks a part, or has more than `bytes_max`
  /// is dropped. Errors: corrupt, invalid_argument: dropped; others: it cannot be read now.
  [[nodiscard]] Result<std::vector<PartBytes>> read(const Manifest& manifest,
                                                    std::uint64_t bytes_max);

  [[nodiscard]] Duration deadline() const noexcept { return options_.deadline; }
  [[nodiscard]] RemoteCounters counters() const;

 private:
  struct Behind {
    ChunkKey key = {};
    std::uint32_t tokens = 0;
    std::shared_ptr<std::vector<PartBytes>> parts = nullptr;
    std::uint64_t bytes = 0;
  };
  explicit RemoteChunks(const RemoteChunksOptions& options);
  Status start();
  void write_all();
  void drop(const ChunkKey& key, std::span<const PartName> parts);

  const RemoteChunksOptions options_;
  ChunkStore chunks_;
  ChunkStore chunks_behind_;  ///< its batches have no priority
  offload::Thread writer_;

  mutable std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  std::deque<Behind> waiting_;  ///< the first one is being written
  std::uint64_t bytes_waiting_ = 0;
  std::optional<Deadline> end_;  ///< of writing; nothing = it goes on
  RemoteCounters counters_;
};

}  // namespace terrace::tiers
