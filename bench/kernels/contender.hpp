// A side of a contest that is a method of something prepared.
#pragma once

#include <memory>
#include <string>

#include "harness/question.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {

template <typename Prepared>
Contender contender(std::string name, const std::shared_ptr<Prepared>& prepared,
                    void (Prepared::*run)(), Status (Prepared::*verify)() const) {
  return {.name = std::move(name),
          .version = std::string(version()),
          .run = [prepared, run] { (*prepared.*run)(); },
          .verify = [prepared, verify] { return (*prepared.*verify)(); }};
}

}  // namespace terrace::bench
