// Runs that several rows share: a run is made when the first of its rows is asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "harness/question.hpp"

namespace terrace::bench {

template <typename Figures>
class Once {
 public:
  explicit Once(std::function<Result<Figures>()> run) : run_(std::move(run)) {}

  const Result<Figures>& get() {
    if (!figures_) figures_ = run_();
    return *figures_;
  }

 private:
  std::function<Result<Figures>()> run_;
  std::optional<Result<Figures>> figures_;
};

/// Returns a row's answer from the figures of a run. `fill` returns nothing, or a Status.
template <typename Figures, typename Fill>
std::function<Status(Row&)> answer(const std::shared_ptr<Once<Figures>>& run, Fill fill) {
  return [run, fill](Row& row) -> Status {
    const Result<Figures>& figures = run->get();
    if (!figures) return tl::unexpected(figures.error());
    if constexpr (std::is_void_v<decltype(fill(row, *figures))>) {
      fill(row, *figures);
      return {};
    } else {
      return fill(row, *figures);
    }
  };
}

}  // namespace terrace::bench
