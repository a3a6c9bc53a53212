#include "terrace/tiers/remote_chunks.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "part_lists.hpp"
#include "terrace/offload/remote_store.hpp"

namespace terrace::tiers {
namespace {

bool is_damage(const Error& error) noexcept {
  return error.code == Errc::corrupt || error.code == Errc::invalid_argument;
}

Duration write_deadline_of(const RemoteChunksOptions& options) noexcept {
  if (options.write_deadline > Duration{}) return options.write_deadline;
  return options.deadline < Duration::max() / 10 ? options.deadline * 10 : Duration::max();
}

}  // namespace

RemoteChunks::RemoteChunks(const RemoteChunksOptions& options)
    : options_(options),
      chunks_(options.store, options.deadline),
      chunks_behind_(options.store, write_deadline_of(options),
                     {.priority = Priority::background}) {}

Result<std::shared_ptr<RemoteChunks>> RemoteChunks::on(const RemoteServers& servers) {
  offload::RemoteStoreOptions options;
  TERRACE_ASSIGN(options.server, offload::RemoteServer::parse(servers.url));
  options.ttl = servers.ttl;
  options.deadline = servers.deadline;
  options.connect_timeout = std::min(options.connect_timeout, servers.deadline);
  TERRACE_ASSIGN(std::shared_ptr<Store> store, offload::RemoteStore::open(options));
  return create({.store = std::move(store), .deadline = servers.deadline});
}

Result<std::shared_ptr<RemoteChunks>> RemoteChunks::create(const RemoteChunksOptions& options) {
  if (options.store == nullptr || options.deadline <= Duration{}) {
    return fail(Errc::invalid_argument, "chunks of a lower store need the store, and a deadline");
  }
  std::shared_ptr<RemoteChunks> chunks(new RemoteChunks(options));
  TERRACE_TRY(chunks->start());
  return chunks;
}

Status RemoteChunks::start() {
  try {
    writer_ = offload::Thread([this] { write_all(); });
  } catch (const std::system_error& error) {
    return fail(Errc::out_of_memory, "no thread to write chunks behind: {}", error.what());
  }
  writer_.set_name("write-behind");
  return {};
}

RemoteChunks::~RemoteChunks() {
  {
    const std::lock_guard lock(mutex_);
    end_.emplace(options_.deadline);
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

void RemoteChunks::write_behind(const ChunkKey& key, std::uint32_t tokens,
                                std::shared_ptr<std::vector<PartBytes>> parts) {
  const std::uint64_t bytes = bytes_of(*parts);
  {
    const std::lock_guard lock(mutex_);
    const bool has_room = waiting_.empty() ? bytes <= options_.chunk_bytes_max
                                           : bytes_waiting_ + bytes <= options_.bytes_behind_max;
    if (end_ || !has_room) {
      ++counters_.left_out;
      return;
    }
    bytes_waiting_ += bytes;
    waiting_.push_back({.key = key, .tokens = tokens, .parts = std::move(parts), .bytes = bytes});
  }
  changed_.notify_all();
}

void RemoteChunks::write_all() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return end_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const Behind next = waiting_.front();
    bool is_written = false;
    if (!end_ || end_->left() > Duration{}) {
      lock.unlock();
      is_written = chunks_behind_.publish(next.key, next.tokens, next.parts).has_value();
      lock.lock();
    }
    ++(is_written ? counters_.written : counters_.left_out);
    bytes_waiting_ -= next.bytes;
    waiting_.pop_front();
    changed_.notify_all();
  }
}

Status RemoteChunks::wait_for_writes(Duration timeout) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, [&] { return waiting_.empty(); })) return {};
  return fail(Errc::not_ready, "{} chunks wait to be written", waiting_.size());
}

Result<std::vector<Result<Manifest>>> RemoteChunks::manifests(std::span<const ChunkKey> keys) {
  TERRACE_ASSIGN(auto manifests, chunks_.manifests(keys));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!manifests[i] && manifests[i].error().code == Errc::corrupt) drop(keys[i], {});
  }
  return manifests;
}

Result<std::vector<PartBytes>> RemoteChunks::read(const Manifest& manifest,
                                                  std::uint64_t bytes_max) {
  Result<std::vector<PartBytes>> parts =
      manifest.bytes() <= std::min(bytes_max, options_.chunk_bytes_max)
          ? chunks_.read_all(manifest)
          : fail(Errc::corrupt,
                 "chunk {}: its manifest names {} bytes, more than there is room for",
                 to_string(manifest.chunk()), manifest.bytes());
  if (!parts && is_damage(parts.error())) drop(manifest.chunk(), names_of(manifest));
  if (parts) {
    const std::lock_guard lock(mutex_);
    ++counters_.read;
  }
  return parts;
}

void RemoteChunks::drop(const ChunkKey& key, std::span<const PartName> parts) {
  // A store that does not take it now has the chunk damaged at the next look-up, too.
  static_cast<void>(chunks_behind_.start_erasing(ChunkStore::pages_of(key, parts)));
  const std::lock_guard lock(mutex_);
  ++counters_.dropped;
}

RemoteCounters RemoteChunks::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace terrace::tiers
