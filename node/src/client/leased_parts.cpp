#include "leased_parts.hpp"

#include <utility>

namespace terrace::node {

LeasedParts::LeasedParts(std::shared_ptr<DaemonClient> client, DaemonLease lease,
                         std::span<const DaemonChunk> chunks)
    : client_(std::move(client)), lease_(std::move(lease)) {
  for (std::uint32_t number = 0; number < chunks.size(); ++number) {
    for (const DaemonPart& part : *chunks[number].parts) {
      pages_.try_emplace(tiers::page_key(chunks[number].key, part.name),
                         Place{.part = {.chunk = number, .name = part.name}, .bytes = part.bytes});
      bytes_ += part.bytes;
    }
  }
}

StoreUsage LeasedParts::usage() const {
  return {.pages = pages_.size(),
          .pages_max = pages_.size(),
          .page_bytes = bytes_,
          .used_bytes = bytes_};
}

void LeasedParts::renew_if_due() {
  // Without an answer it is tried again.
  if (lease_.is_due() && lease_.is_live()) static_cast<void>(client_->renew(lease_));
}

const LeasedParts::Place* LeasedParts::begin(PageRequest& request) const {
  const auto refuse = [&](const Error& why) -> const Place* {
    request.status = tl::unexpected(why);
    return nullptr;
  };
  const auto found = pages_.find(request.key);
  if (found == pages_.end()) {
    return refuse(make_error(Errc::invalid_argument, "store daemon: no such part is leased"));
  }
  const Place& place = found->second;
  switch (request.verb) {
    case PageVerb::find:
      request.bytes = place.bytes;
      request.status = {};
      return nullptr;
    case PageVerb::get:
      if (request.bytes == place.bytes && request.data != nullptr) return &place;
      return refuse(make_error(Errc::invalid_argument, "store daemon: a part of {} bytes is not {}",
                               place.bytes, request.bytes));
    case PageVerb::get_part:
      if (request.data != nullptr && request.offset <= place.bytes &&
          request.bytes <= place.bytes - request.offset) {
        return &place;
      }
      return refuse(make_error(Errc::invalid_argument,
                               "store daemon: {} bytes from {} on are not in a part of {}",
                               request.bytes, request.offset, place.bytes));
    case PageVerb::put:
    case PageVerb::erase:
      break;
  }
  return refuse(make_error(Errc::unsupported, "store daemon: parts of chunks are read alone"));
}

Result<StoreTicket> LeasedParts::do_submit(std::span<PageRequest> batch,
                                           const BatchOptions& /*options*/) {
  std::vector<DaemonCopy> copies;
  std::vector<PageRequest*> asked;
  for (PageRequest& request : batch) {
    const Place* const place = begin(request);
    if (place == nullptr) continue;
    copies.push_back({.part = place->part,
                      .offset = request.verb == PageVerb::get_part ? request.offset : 0,
                      .target = {request.data, request.bytes}});
    asked.push_back(&request);
  }
  if (!copies.empty()) client_->copy(lease_, copies);
  const bool is_gone = !copies.empty() && !lease_.is_live();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Status& status = asked[i]->status;
    status = copies[i].status;
    if (status) continue;
    const Error& why = status.error();
    const bool is_lost = is_gone && why.code == Errc::not_ready;
    if (is_lost || why.code == Errc::out_of_memory) {
      status = fail(Errc::io_error, "{}; compute the tokens again", why.message());
    }
  }
  StoreTicket ticket;
  ticket.done.set();
  return ticket;
}

}  // namespace terrace::node
