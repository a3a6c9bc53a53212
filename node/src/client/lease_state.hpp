// The state of a lease that a client has, shared with those who look whether it is live.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "client_link.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {

struct DaemonLease::State {
  State(std::shared_ptr<ClientLink> its_link, std::uint64_t its_number, TimePoint its_end)
      : link(std::move(its_link)),
        epoch(link->epoch()),
        number(its_number),
        time(link->lease_time()),
        until(its_end.time_since_epoch().count()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { link->release(epoch, number); }

  [[nodiscard]] bool is_live() const noexcept {
    return link->now().time_since_epoch().count() < until.load() && link->connection_is(epoch);
  }
  [[nodiscard]] bool is_due() const noexcept {
    return (link->now() + time / 2).time_since_epoch().count() >= until.load();
  }

  const std::shared_ptr<ClientLink> link;
  const std::uint64_t epoch;
  const std::uint64_t number;
  const Duration time;  ///< without a use until it ends
  /// The daemon counts from the moment at which it hears of a use: it keeps the lease longer.
  std::atomic<TimePoint::rep> until;

  std::mutex mutex;                                                  ///< guards what follows
  std::map<std::uint32_t, std::shared_ptr<const Mapping>> segments;  ///< in which parts lie
};

}  // namespace terrace::node
