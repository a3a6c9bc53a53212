// Copies of leased parts: read, copy, and look whether the lease was live all the time, in one
// call. So nobody reads under the lease between, and its parts need not stay.
#include <algorithm>
#include <cstring>
#include <utility>

#include "client_link.hpp"
#include "lease_state.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {
namespace {

using Copies = std::vector<DaemonCopy*>;

bool is_of(const DaemonPartRequest& a, const DaemonPartRequest& b) {
  return a.chunk == b.chunk && a.name == b.name;
}

/// The parts that copies are of, each once, as many as a message may name.
std::vector<DaemonPartRequest> parts_of(const Copies& copies) {
  std::vector<DaemonPartRequest> parts;
  for (const DaemonCopy* const copy : copies) {
    const bool is_new = std::ranges::none_of(
        parts, [&](const DaemonPartRequest& part) { return is_of(part, copy->part); });
    if (is_new && parts.size() < wire::read_parts_max) parts.push_back(copy->part);
  }
  return parts;
}

Status copy_from(std::span<const std::byte> part, const DaemonCopy& copy) {
  if (copy.offset > part.size() || copy.target.size() > part.size() - copy.offset) {
    return fail(Errc::invalid_argument, "{} bytes from {} on are not in a part of {}",
                copy.target.size(), copy.offset, part.size());
  }
  if (!copy.target.empty()) {
    std::memcpy(copy.target.data(), part.data() + copy.offset, copy.target.size());
  }
  return {};
}

/// Whether the part comes once other parts of this call have left the daemon's memory.
bool may_come(const Error& error) {
  return error.code == Errc::out_of_memory || error.code == Errc::not_ready;
}

void end_all(const Copies& copies, const Error& why) {
  for (DaemonCopy* const copy : copies) copy->status = tl::unexpected(why);
}

}  // namespace

void DaemonClient::copy(const DaemonLease& lease, std::span<DaemonCopy> copies) {
  Copies left;
  for (DaemonCopy& copy : copies) left.push_back(&copy);
  end_all(left, make_error(Errc::not_ready, "the part was not asked for"));
  Turn turn(*link_);
  while (!left.empty()) {
    const std::vector<DaemonPartRequest> parts = parts_of(left);
    Segments segments;
    const Result<PartsRead> read = read_now(turn, lease, parts, segments);
    if (!read) return end_all(left, read.error());
    Copies later;  // those that were not asked for yet come first
    Copies again;
    Copies copied;
    for (DaemonCopy* const copy : left) {
      const auto part = std::ranges::find_if(
          parts, [&](const DaemonPartRequest& each) { return is_of(each, copy->part); });
      if (part == parts.end()) {
        later.push_back(copy);
        continue;
      }
      const auto& bytes = (*read)[static_cast<std::size_t>(part - parts.begin())];
      copy->status = bytes ? copy_from(*bytes, *copy) : tl::unexpected(bytes.error());
      if (bytes) copied.push_back(copy);
      if (!bytes && may_come(bytes.error())) again.push_back(copy);
    }
    const bool goes_on = !copied.empty() || !later.empty();
    later.insert(later.end(), again.begin(), again.end());
    if (!lease.is_live()) {
      end_all(copied, make_error(Errc::not_ready, "the lease has ended: look up again"));
      return end_all(later, make_error(Errc::not_ready, "the lease has ended: look up again"));
    }
    link_->let_go(lease.state_->number);
    turn.send_notices();
    if (!goes_on) return;
    left = std::move(later);
  }
}

}  // namespace terrace::node
