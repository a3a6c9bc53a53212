// The parts of the chunks of one lease, as the pages of a store that is read alone. They stay with
// the daemon: a request asks for its parts and copies what it names of them.
//
// Once the lease has ended, by its time, by the daemon's end or by its connection's, a page is an
// io_error: its rows are to be computed again. A daemon that is late, while the lease is live, is
// not_ready.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "terrace/core/store.hpp"
#include "terrace/node/daemon_client.hpp"

namespace terrace::node {

/// A batch is done when submit() returns, which is by the client's deadline.
///
/// Threads  as Store; lease() before others use it
class LeasedParts final : public Store {
 public:
  LeasedParts(std::shared_ptr<DaemonClient> client, DaemonLease lease,
              std::span<const DaemonChunk> chunks);

  [[nodiscard]] std::string_view name() const noexcept override { return "daemon"; }
  void cancel(const StoreTicket& /*ticket*/) noexcept override {}
  [[nodiscard]] StoreUsage usage() const override;

  [[nodiscard]] bool is_live() const noexcept { return lease_.is_live(); }
  [[nodiscard]] Duration lease_time() const noexcept { return lease_.time(); }
  /// Has the lease end later, if half of its time is over. Waits until the client's deadline.
  void renew_if_due();

  [[nodiscard]] DaemonClient& client() const noexcept { return *client_; }
  [[nodiscard]] DaemonLease& lease() noexcept { return lease_; }

 private:
  struct Place {
    DaemonPartRequest part = {};
    std::uint64_t bytes = 0;
  };

  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;
  /// Answers what needs no daemon; returns the place of a page that is to be read, or null.
  const Place* begin(PageRequest& request) const;

  const std::shared_ptr<DaemonClient> client_;
  DaemonLease lease_;
  std::unordered_map<PageKey, Place, PageKeyHash> pages_;
  std::uint64_t bytes_ = 0;
};

}  // namespace terrace::node
