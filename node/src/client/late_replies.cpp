// Replies that nobody waits for any more, and leases and reservations that nobody wants.
#include <algorithm>
#include <cmath>
#include <utility>

#include "client_link.hpp"

namespace terrace::node {

Result<std::vector<Descriptor>> ClientLink::take_descriptors(std::size_t count) {
  if (descriptors_.size() < count) {
    disconnect(make_error(Errc::corrupt, "a reply came without its descriptors"));
    return tl::unexpected(*last_failure_);
  }
  const auto end = descriptors_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Descriptor> taken(std::make_move_iterator(descriptors_.begin()),
                                std::make_move_iterator(end));
  descriptors_.erase(descriptors_.begin(), end);
  return taken;
}

Status ClientLink::take_segments(const wire::ReadReply& reply) {
  for (const std::uint32_t number : reply.retired) segments_.erase(number);
  TERRACE_ASSIGN(const std::vector<Descriptor> files, take_descriptors(reply.segments.size()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    Result<Mapping> mapping = Mapping::of(files[i], reply.segments[i].bytes, false);
    if (!mapping) {
      disconnect(mapping.error());
      return tl::unexpected(*last_failure_);
    }
    segments_.insert_or_assign(reply.segments[i].number,
                               std::make_shared<const Mapping>(*std::move(mapping)));
  }
  return {};
}

std::shared_ptr<const Mapping> ClientLink::segment(std::uint32_t number) const {
  const auto found = segments_.find(number);
  return found == segments_.end() ? nullptr : found->second;
}

void ClientLink::absorb_all() {
  while (socket_ != nullptr) {
    const Result<std::optional<Reply>> reply = take_reply();
    if (!reply) return disconnect(reply.error());
    if (!*reply) return;
    absorb(**reply);
  }
}

void ClientLink::absorb(const Reply& reply) {
  if (late_.erase(reply.header.request) > 0) pause_ = {};
  if (reply.header.status != 0) return;
  const auto kind = static_cast<wire::Kind>(reply.header.kind & ~wire::reply_bit);
  const auto is_unwanted = [&](wire::Kind how, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (number != 0) notices_.push_back({.epoch = epoch_.load(), .kind = how, .number = number});
  };
  Status taken;
  if (kind == wire::Kind::find) {
    const auto found = wire::read_body<wire::FindReply>(reply.body);
    if (found) is_unwanted(wire::Kind::release, found->lease);
  } else if (kind == wire::Kind::lease) {
    const auto leased = wire::read_body<wire::LeaseReply>(reply.body);
    if (leased) is_unwanted(wire::Kind::release, leased->lease);
  } else if (kind == wire::Kind::read) {
    const auto read = wire::read_body<wire::ReadReply>(reply.body);
    taken = read ? take_segments(*read) : tl::unexpected(read.error());
  } else if (kind == wire::Kind::reserve) {
    const auto reserved = wire::read_body<wire::ReserveReply>(reply.body);
    if (!reserved) return disconnect(reserved.error());
    is_unwanted(wire::Kind::cancel, reserved->reservation);
    if (reserved->reservation != 0) static_cast<void>(take_descriptors(1));
  }
  if (!taken && socket_ != nullptr) disconnect(taken.error());
}

void ClientLink::cancel(std::uint64_t reservation) noexcept {
  const std::lock_guard lock(mutex_);
  notices_.push_back({.epoch = epoch_.load(), .kind = wire::Kind::cancel, .number = reservation});
}

void ClientLink::let_go(std::uint64_t lease) noexcept {
  const std::lock_guard lock(mutex_);
  notices_.push_back({.epoch = epoch_.load(), .kind = wire::Kind::let_go, .number = lease});
}

void ClientLink::release(std::uint64_t epoch, std::uint64_t lease) noexcept {
  // Without its connection, it has ended.
  static_cast<void>(tell({.epoch = epoch, .kind = wire::Kind::release, .number = lease}));
}

bool ClientLink::note_mass(double mass) noexcept {
  const auto millionths =
      static_cast<std::uint64_t>(std::llround(std::clamp(mass, 0.0, 1.0) * 1e6));
  const std::uint64_t epoch = epoch_.load();
  return epoch != 0 && tell({.epoch = epoch, .kind = wire::Kind::note_mass, .number = millionths});
}

bool ClientLink::tell(Notice notice) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (epoch_.load() != notice.epoch) return false;
    notices_.push_back(notice);
    if (is_calling_) return true;
    is_calling_ = true;
  }
  absorb_all();  // replies to earlier notices
  end();
  return true;
}

void ClientLink::send_notices() noexcept {
  for (;;) {
    Notice next;
    {
      const std::lock_guard lock(mutex_);
      if (notices_.empty() || socket_ == nullptr) return;
      next = notices_.back();
      notices_.pop_back();
      if (next.epoch != epoch_.load()) continue;
    }
    const wire::Header header{.kind = static_cast<std::uint8_t>(next.kind),
                              .request = next_request_++};
    OutgoingFrame frame{.bytes = wire::make_frame(header, wire::LeaseNumber{next.number})};
    if (unsent_ && !send_some(*socket_, *unsent_)) return;  // the next call notices
    if (unsent_ && unsent_->sent < unsent_->bytes.size()) {
      const std::lock_guard lock(mutex_);
      return notices_.push_back(next);
    }
    unsent_.reset();
    if (!send_some(*socket_, frame)) return;
    if (frame.sent < frame.bytes.size()) unsent_ = std::move(frame);
  }
}

}  // namespace terrace::node
