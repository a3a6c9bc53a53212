#include "lease_state.hpp"

namespace terrace::node {

DaemonLease::DaemonLease() = default;
DaemonLease::DaemonLease(DaemonLease&&) noexcept = default;
DaemonLease& DaemonLease::operator=(DaemonLease&&) noexcept = default;
DaemonLease::~DaemonLease() = default;

bool DaemonLease::is_live() const noexcept { return state_ != nullptr && state_->is_live(); }

bool DaemonLease::is_due() const noexcept { return state_ != nullptr && state_->is_due(); }

Duration DaemonLease::time() const noexcept {
  return state_ == nullptr ? Duration::zero() : state_->time;
}

}  // namespace terrace::node
