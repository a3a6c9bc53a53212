// Publishing chunks: reserve memory, let the client write, commit what it has written.
//
// The bytes that are published are a copy that no client can reach: a client that goes on writing
// changes nothing of them.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "session_jobs.hpp"

namespace terrace::node {
namespace {

Status read_all(const Descriptor& file, std::uint64_t place, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count = ::pread(file.get(), to.data(), to.size(), static_cast<off_t>(place));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(Errc::io_error, "reading a reservation: {}", std::strerror(errno));
    to = to.subspan(static_cast<std::size_t>(count));
    place += static_cast<std::uint64_t>(count);
  }
  return {};
}

Result<std::vector<tiers::PartBytes>> copy_parts(const MemoryFile& memory,
                                                 const wire::Reserve& chunk,
                                                 std::span<const std::uint64_t> places) {
  std::vector<tiers::PartBytes> parts;
  for (std::size_t i = 0; i < chunk.parts.size(); ++i) {
    tiers::PartBytes& part = parts.emplace_back();
    part.name = chunk.parts[i].name;
    part.bytes.resize(chunk.parts[i].bytes);
    TERRACE_TRY(read_all(memory.descriptor(), places[i], part.bytes));
  }
  return parts;
}

/// Errors   as tiers::Manifest::create, before any byte was written
Status check_parts(const wire::Reserve& message) {
  std::vector<tiers::Part> parts;
  parts.reserve(message.parts.size());
  for (const wire::SizedPart& part : message.parts) {
    parts.push_back({.name = part.name, .bytes = part.bytes});
  }
  TERRACE_TRY(tiers::Manifest::create(message.key, message.tokens, std::move(parts)));
  return {};
}

}  // namespace

Status Session::reserve(std::uint64_t request, const wire::Reserve& message) {
  TERRACE_TRY(check_parts(message));
  const auto places = wire::lay_out(message.parts);
  const std::uint64_t limit = node_.options.client.bytes;
  if (!places || places->back() > limit || reserved_bytes_ > limit - places->back() ||
      reservations_.size() >= node_.options.client.reservations) {
    return fail(Errc::out_of_memory, "the client has {} reservations of {} bytes: end one",
                reservations_.size(), reserved_bytes_);
  }
  auto chunk = std::make_shared<wire::Reserve>(message);
  TERRACE_ASSIGN(chunk->key, ChunkService::key_of(tenant_, message.key));
  start<tiers::ChunkLease>(
      [chunks = &node_.chunks, tenant = tenant_, key = chunk->key] {
        return chunks->lease(tenant, key);
      },
      [request, chunk, places = *places](Session& session, tiers::ChunkLease& there) {
        if (there.chunks().empty()) return session.open_reservation(request, chunk, places);
        session.reply(wire::Kind::reserve, request,
                      wire::ReserveReply{.state = tiers::Published::was_there,
                                         .lease = session.keep(chunk->lease, std::move(there))});
      });
  return {};
}

void Session::open_reservation(std::uint64_t request, std::shared_ptr<const wire::Reserve> chunk,
                               std::vector<std::uint64_t> places) {
  const std::uint64_t bytes = places.back();
  // Others of this client may have been opened since it was looked at.
  const std::uint64_t limit = node_.options.client.bytes;
  Result<MemoryFile> memory =
      reserved_bytes_ > limit - bytes || reservations_.size() >= node_.options.client.reservations
          ? fail(Errc::out_of_memory, "the client has too many reservations: end one")
          : MemoryFile::create({.name = "terrace-reservation", .bytes = bytes});
  if (!memory) return reply_error(wire::Kind::reserve, request, memory.error());
  Reservation reservation{.memory = std::make_shared<MemoryFile>(*std::move(memory)),
                          .chunk = std::move(chunk),
                          .places = std::move(places),
                          .until = node_.clock.now() + node_.options.lease};
  const std::uint64_t number = node_.next_number++;
  reserved_bytes_ += bytes;
  std::shared_ptr<const Descriptor> descriptor(reservation.memory,
                                               &reservation.memory->descriptor());
  reservations_.emplace(number, std::move(reservation));
  reply(wire::Kind::reserve, request, wire::ReserveReply{.reservation = number, .bytes = bytes},
        {std::move(descriptor)});
}

Status Session::commit(std::uint64_t request, const wire::ReservationNumber& message) {
  const auto found = reservations_.find(message.reservation);
  if (found == reservations_.end() || found->second.is_committing) {
    return fail(Errc::not_ready, "the reservation has ended: reserve again");
  }
  Reservation& reservation = found->second;
  reservation.is_committing = true;
  using Outcome = Result<ChunkService::PublishedChunk>;
  start<Outcome>(
      [chunks = &node_.chunks, tenant = tenant_, memory = reservation.memory,
       chunk = reservation.chunk, places = reservation.places]() -> Outcome {
        TERRACE_ASSIGN(auto parts, copy_parts(*memory, *chunk, places));
        return chunks->publish(
            {.tenant = tenant, .root = chunk->root, .key = chunk->key, .tokens = chunk->tokens},
            std::move(parts));
      },
      [request, number = message.reservation](Session& session, Outcome& published) {
        session.answer_commit(request, number, published);
      });
  return {};
}

void Session::answer_commit(std::uint64_t request, std::uint64_t number,
                            Result<ChunkService::PublishedChunk>& published) {
  const auto reservation = reservations_.find(number);
  const std::shared_ptr<const wire::Reserve> chunk = reservation->second.chunk;
  end_reservation(reservation);
  if (!published) return reply_error(wire::Kind::commit, request, published.error());
  if (published->state == tiers::Published::written) ++node_.counters.published;
  reply(wire::Kind::commit, request,
        wire::CommitReply{.state = published->state,
                          .lease = keep(chunk->lease, std::move(published->lease))});
}

Status Session::cancel(std::uint64_t request, const wire::ReservationNumber& message) {
  const auto found = reservations_.find(message.reservation);
  if (found != reservations_.end() && !found->second.is_committing) end_reservation(found);
  reply(wire::Kind::cancel, request, wire::Nothing{});
  return {};
}

void Session::end_reservation(std::map<std::uint64_t, Reservation>::iterator reservation) {
  reserved_bytes_ -= reservation->second.places.back();
  reservations_.erase(reservation);
}

}  // namespace terrace::node
