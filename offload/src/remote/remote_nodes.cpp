#include "remote_nodes.hpp"

#include <algorithm>
#include <utility>

namespace terrace::offload {

RemoteNodes::RemoteNodes(const RemoteStoreOptions& options, std::function<void()> wake)
    : options_(options), wake_(std::move(wake)) {
  for (const RemoteAddress& address : options_.server.addresses) node_at(address);
}

RemoteNode& RemoteNodes::node_at(const RemoteAddress& address) {
  std::unique_ptr<RemoteNode>& node = nodes_[address];
  if (node == nullptr) node = std::make_unique<RemoteNode>(address, options_, wake_);
  return *node;
}

RemoteNodes::Route RemoteNodes::to(RemoteNode& node) {
  if (!node.is_out()) return {.node = &node};
  doubt_map();
  return {.refused = fail(Errc::not_ready, "store remote: {} has failed, and is asked again later",
                          node.address().text())};
}

RemoteNodes::Route RemoteNodes::route(std::uint16_t slot) {
  switch (kind_) {
    case Kind::unknown: {
      const bool all_out =
          std::ranges::all_of(nodes_, [](const auto& each) { return each.second->is_out(); });
      if (!all_out) return {.must_wait = true};
      return {.refused = fail(Errc::not_ready, "{}", last_failure_.message())};
    }
    case Kind::refused:
      return {.refused = fail(Errc::unsupported,
                              "store remote: several addresses, and no cluster; name one server")};
    case Kind::server:
      return to(*nodes_.begin()->second);
    case Kind::cluster:
      break;
  }
  const RemoteAddress* const address = slots_.find(slot);
  if (address != nullptr) return to(node_at(*address));
  doubt_map();
  return {.refused =
              fail(Errc::not_ready, "store remote: the cluster has no node for slot {}", slot)};
}

RemoteNodes::Route RemoteNodes::follow(const Redirect& redirect) {
  if (kind_ != Kind::cluster) {
    return {.refused = fail(Errc::io_error,
                            "store remote: a cluster whose map of slots this user may not read; "
                            "allow CLUSTER SLOTS")};
  }
  if (!redirect.asks_once) {
    slots_.move(redirect.slot, redirect.node);
    doubt_map();
  }
  return to(node_at(redirect.node));
}

void RemoteNodes::add_polls(std::vector<pollfd>& polls) const {
  for (const auto& [address, node] : nodes_) {
    polls.push_back({.fd = node->descriptor(), .events = node->events(), .revents = 0});
  }
}

TimePoint RemoteNodes::next_time() const noexcept {
  TimePoint next = TimePoint::max();
  bool any_ready = false;
  for (const auto& [address, node] : nodes_) {
    next = std::min(next, node->next_time());
    any_ready |= node->is_ready();
  }
  return is_doubtful_ && any_ready ? std::min(next, ask_again_) : next;
}

bool RemoteNodes::advance(std::span<const pollfd> polls, TimePoint now, NodeNews& news) {
  std::size_t number = 0;
  std::vector<NodeNews> all;
  for (const auto& [address, node] : nodes_) {
    const short events = number < polls.size() ? polls[number].revents : short{0};
    ++number;
    node->advance(events, now, all.emplace_back());
  }
  bool heard = false;
  for (NodeNews& each : all) {
    heard |= hear(each);
    std::ranges::move(each.answered, std::back_inserter(news.answered));
    std::ranges::move(each.lost, std::back_inserter(news.lost));
    std::ranges::move(each.without_memory, std::back_inserter(news.without_memory));
    if (each.failure) news.failure = each.failure;
  }
  if (is_doubtful_ && now >= ask_again_) ask_for_slots(now);
  return heard;
}

bool RemoteNodes::hear(const NodeNews& news) {
  if (news.failure) {
    last_failure_ = *news.failure;
    doubt_map();
  }
  if (news.slots) assign(*news.slots);
  if (news.is_no_cluster && kind_ == Kind::unknown) {
    kind_ = nodes_.size() == 1 ? Kind::server : Kind::refused;
  }
  return news.failure || news.slots || news.is_no_cluster || !news.answered.empty() ||
         !news.without_memory.empty();
}

void RemoteNodes::assign(std::span<const SlotRange> slots) {
  kind_ = Kind::cluster;
  is_doubtful_ = false;
  slots_.assign(slots);
  for (const SlotRange& range : slots) node_at(range.node);
  std::erase_if(nodes_, [&](const auto& each) {
    const auto& [address, node] = each;
    const bool is_named =
        std::ranges::find(options_.server.addresses, address) != options_.server.addresses.end();
    return !is_named && !slots_.has(address) && node->is_idle();
  });
}

void RemoteNodes::ask_for_slots(TimePoint now) {
  if (kind_ != Kind::cluster) {
    is_doubtful_ = false;
    return;
  }
  // Nodes answer with what they know: each is asked, and the last answer counts.
  for (const auto& [address, node] : nodes_) {
    if (node->is_ready()) node->ask_for_slots(now);
  }
  ask_again_ = now + options_.retry_first;
}

void RemoteNodes::describe(RemoteStoreState& state) const {
  state.is_cluster = kind_ == Kind::cluster;
  state.nodes = nodes_.size();
  state.nodes_ready = 0;
  for (const auto& [address, node] : nodes_) {
    if (node->is_ready()) ++state.nodes_ready;
  }
  state.last_failure = last_failure_.message();
}

}  // namespace terrace::offload
