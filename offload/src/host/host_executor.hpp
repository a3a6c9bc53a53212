// Carries pieces out on the host: copies, host functions, and the wait that an imitated link
// imposes.
#pragma once

#include <memory>

#include "queue/executor.hpp"
#include "queue/pause.hpp"
#include "terrace/offload/link.hpp"

namespace terrace::offload {

class HostExecutor final : public Executor {
 public:
  /// Without a link (null) transfers take the time they take.
  HostExecutor(const ExecutorSetup& setup, Link* link)
      : Executor(setup, std::make_shared<Progress>(setup.name)), link_(link) {}

  [[nodiscard]] Need need(const Piece& piece) const override;
  [[nodiscard]] bool is_brief(Piece::Kind /*kind*/) const noexcept override { return false; }
  void carry_out(Piece& piece) override;
  void stop() noexcept override;

 private:
  Status perform(Piece& piece);
  void pay_for(Phase phase, TimePoint began, std::size_t bytes);

  Link* link_;
  Pause pause_;
};

}  // namespace terrace::offload
