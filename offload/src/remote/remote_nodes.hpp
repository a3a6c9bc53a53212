// The servers of a store: one, or those of a cluster with its map of slots.
#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "remote_node.hpp"
#include "slot_map.hpp"

namespace terrace::offload {

/// Threads  one at a time
class RemoteNodes {
 public:
  /// `options` outlives it.
  RemoteNodes(const RemoteStoreOptions& options, std::function<void()> wake);

  /// The node that a request is for, or why there is none now.
  struct Route {
    RemoteNode* node = nullptr;
    bool must_wait = false;  ///< nobody has said yet whether there is a cluster
    Status refused = {};
  };
  [[nodiscard]] Route route(std::uint16_t slot);
  /// Follows a redirect.
  [[nodiscard]] Route follow(const Redirect& redirect);
  /// The map of slots seems to be old: it is asked for again.
  void doubt_map() noexcept { is_doubtful_ = true; }

  /// Appends the descriptors to poll.
  void add_polls(std::vector<pollfd>& polls) const;
  /// Returns when advance() has something to do at the latest.
  [[nodiscard]] TimePoint next_time() const noexcept;
  /// Moves what can be moved. `polls`: as poll() has left what add_polls() appended; empty = no
  /// events. Returns whether there was something to hear.
  bool advance(std::span<const pollfd> polls, TimePoint now, NodeNews& news);

  /// Fills in what is known of nodes.
  void describe(RemoteStoreState& state) const;

 private:
  enum class Kind : std::uint8_t { unknown, server, cluster, refused };

  RemoteNode& node_at(const RemoteAddress& address);
  [[nodiscard]] Route to(RemoteNode& node);
  bool hear(const NodeNews& news);
  void assign(std::span<const SlotRange> slots);
  void ask_for_slots(TimePoint now);

  const RemoteStoreOptions& options_;
  const std::function<void()> wake_;
  Kind kind_ = Kind::unknown;
  std::map<RemoteAddress, std::unique_ptr<RemoteNode>> nodes_;
  SlotMap slots_;
  bool is_doubtful_ = false;
  TimePoint ask_again_{};  ///< for the map, at the earliest
  Error last_failure_ = {};
};

}  // namespace terrace::offload
