// Reading parts of leased chunks: each comes into the pool, and the client gets its place.
#include <algorithm>
#include <cstring>
#include <utility>

#include "session_jobs.hpp"

namespace terrace::node {
namespace {

/// Reads parts into memory; returns how each went.
std::vector<Status> load_now(ChunkService& chunks, std::span<const PartToLoad> parts) {
  std::vector<tiers::PartOfChunk> wanted;
  wanted.reserve(parts.size());
  for (const PartToLoad& part : parts) wanted.push_back(part.from);
  const auto read = chunks.read(wanted);
  std::vector<Status> loaded;
  loaded.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Status& status = loaded.emplace_back();
    if (read && (*read)[i]) {
      const std::vector<std::byte>& bytes = *(*read)[i];
      std::memcpy(PartPool::memory_of(*parts[i].to).data(), bytes.data(), bytes.size());
      continue;
    }
    const Error& why = read ? (*read)[i].error() : read.error();
    // The chunk has this part: the file lost it. The client has asked for nothing wrong.
    status = why.code == Errc::invalid_argument ? Status(fail(Errc::corrupt, "{}", why.message()))
                                                : Status(tl::unexpected(why));
  }
  return loaded;
}

}  // namespace

Status Session::read(std::uint64_t request, const wire::Read& message) {
  if (message.parts.size() > wire::read_parts_max) {
    return fail(Errc::invalid_argument, "{} parts at once are above {}", message.parts.size(),
                wire::read_parts_max);
  }
  TERRACE_ASSIGN(ClientLease* const lease, lease_of(message.lease));
  auto pending = std::make_shared<PendingRead>();
  pending->session = number_;
  pending->request = request;
  pending->lease = message.lease;
  pending->parts.resize(message.parts.size());
  pending->segments.resize(message.parts.size());
  ++under_way_;
  ++pending->loading;  // this call itself
  for (std::size_t i = 0; i < message.parts.size(); ++i) {
    const Status placed = place(pending, *lease, i, message.parts[i]);
    if (!placed) pending->parts[i].status = wire::status_of(placed.error().code);
  }
  load(*lease, std::exchange(pending->loads, {}));
  node_.tell_retired();
  if (--pending->loading == 0) answer_read(*pending);
  return {};
}

Status Session::place(const std::shared_ptr<PendingRead>& pending, ClientLease& lease,
                      std::size_t number, const wire::WantedPart& wanted) {
  if (lease.found == nullptr || wanted.chunk >= lease.found->run.size()) {
    return fail(Errc::invalid_argument, "the lease has no such chunk");
  }
  const tiers::Manifest& manifest = lease.found->run[wanted.chunk];
  const tiers::Part* const description = manifest.find(wanted.name);
  if (description == nullptr) return fail(Errc::invalid_argument, "the chunk has no such part");
  TERRACE_ASSIGN(PooledPart* const part, pooled(lease, {&manifest, description}, pending->loads));
  if (lease.parts.insert(part).second) {
    node_.pool.hold(*part);
    held_bytes_ += part->bytes;
  }
  ++node_.counters.parts_read;
  node_.counters.bytes_read += part->bytes;
  pending->segments[number] = part->segment;
  pending->parts[number] = {
      .segment = part->segment->number, .offset = part->offset, .bytes = part->bytes};
  if (part->is_ready) {
    ++node_.counters.parts_from_memory;
    return {};
  }
  ++pending->loading;
  NodeState& node = node_;
  part->waiting.push_back([&node, pending, number, part](const Status& loaded) {
    Session* const session = node.session(pending->session);
    if (session != nullptr) session->end_loading(pending, number, *part, loaded);
  });
  return {};
}

Result<PooledPart*> Session::pooled(const ClientLease& lease, const tiers::PartOfChunk& wanted,
                                    std::vector<PartToLoad>& loads) {
  const tiers::Part& description = *wanted.part;
  const PartKey key{.chunk = wanted.manifest->chunk(),
                    .part = description.name,
                    .checksum = description.checksum};
  PooledPart* part = node_.pool.find(key);
  const bool is_held = part != nullptr && lease.parts.contains(part);
  const std::uint64_t limit = node_.options.client.bytes;
  if (!is_held && (description.bytes > limit || held_bytes_ > limit - description.bytes)) {
    return fail(Errc::out_of_memory, "the client's leases hold {} bytes: release one", held_bytes_);
  }
  if (part == nullptr) {
    TERRACE_ASSIGN(part, node_.pool.add(key, tenant_.digest, description.bytes));
    loads.push_back({.to = part, .from = wanted});
  }
  return part;
}

void Session::load(const ClientLease& lease, std::span<const PartToLoad> parts) {
  while (!parts.empty()) {
    // As much as keeps a disk busy, so that other clients' jobs do not wait for long.
    constexpr std::uint64_t job_bytes = std::uint64_t{4} << 20;
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; count < parts.size() && bytes < job_bytes; ++count) {
      bytes += parts[count].to->bytes;
    }
    const auto some = parts.first(count);
    parts = parts.subspan(count);
    NodeState& node = node_;
    // The look-up is shared, so that its chunks stay until they have been read.
    node_.workers.start(
        number_,
        [&node, found = lease.found, loads = std::vector(some.begin(), some.end())]() -> Ending {
          std::vector<Status> loaded = load_now(node.chunks, loads);
          return [&node, found, loads, loaded = std::move(loaded)] {
            for (std::size_t i = 0; i < loads.size(); ++i)
              node.pool.settle(*loads[i].to, loaded[i]);
          };
        });
  }
}

void Session::end_loading(const std::shared_ptr<PendingRead>& pending, std::size_t number,
                          PooledPart& part, const Status& loaded) {
  if (!loaded) {
    pending->parts[number] = {.status = wire::status_of(loaded.error().code)};
    pending->segments[number] = nullptr;
    const auto lease = leases_.find(pending->lease);
    if (lease != leases_.end() && lease->second.parts.erase(&part) > 0) {
      held_bytes_ -= part.bytes;
      node_.pool.let_go(part);
    }
  }
  if (--pending->loading == 0) answer_read(*pending);
}

void Session::answer_read(PendingRead& pending) {
  --under_way_;
  const bool is_leased = leases_.contains(pending.lease);
  wire::ReadReply answer{.retired = std::exchange(retired_, {}), .parts = std::move(pending.parts)};
  std::vector<std::shared_ptr<const Descriptor>> descriptors;
  for (std::size_t i = 0; i < answer.parts.size(); ++i) {
    const std::shared_ptr<PoolSegment>& segment = pending.segments[i];
    if (segment == nullptr) continue;
    const bool is_known = segments_.contains(segment->number);
    if (!is_leased || (!is_known && descriptors.size() == wire::descriptors_max)) {
      answer.parts[i] = {.status = wire::status_of(Errc::not_ready)};
    } else if (!is_known) {
      segments_.insert(segment->number);
      answer.segments.push_back({.number = segment->number, .bytes = segment->file.bytes()});
      descriptors.emplace_back(segment, &segment->file.descriptor());
    }
  }
  reply(wire::Kind::read, pending.request, answer, std::move(descriptors));
}

}  // namespace terrace::node
