// What all imports of requests have in common.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// Gives units dense numbers, in the order in which they first come.
template <typename Name>
class UnitNumbers {
 public:
  UnitKey of(const Name& name) {
    return numbers_.try_emplace(name, static_cast<UnitKey>(numbers_.size())).first->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

 private:
  std::unordered_map<Name, UnitKey> numbers_;
};

/// Writes a step of a request, which wants the record's units in all layers.
void append_request(TraceWriter& writer, std::size_t layers, TraceRecord& record);

}  // namespace terrace::tuning
