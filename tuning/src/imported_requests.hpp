// The part that all imports of requests have in common.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "terrace/tuning/import.hpp"
#include "terrace/tuning/trace_file.hpp"
#include "trace_codec.hpp"

namespace terrace::tuning {

/// Gives units dense numbers, in the order in which they first come.
template <typename Name>
class UnitNumbers {
 public:
  UnitKey of(const Name& name) {
    return numbers_.try_emplace(name, static_cast<UnitKey>(numbers_.size())).first->second;
  }
  [[nodiscard]] std::size_t size() const noexcept { return numbers_.size(); }

  /// Says that there are more than a trace can tell apart, if so, and what to do.
  [[nodiscard]] std::string flaw() const {
    if (size() <= trace_units_max) return {};
    return fmt::format(
        "with this line there are more than {} different ids, and a trace has no room for more: "
        "convert a part of the file",
        trace_units_max);
  }

 private:
  std::unordered_map<Name, UnitKey> numbers_;
};

/// A trace of requests without a model: one layer of one head.
TraceHead requests_head(std::string source, std::size_t block_tokens);

/// A trace of prompts that share prefixes, of one layer of one head without a model.
TraceHead prefixes_head(std::string source, std::size_t block_tokens,
                        const std::optional<ImportedModel>& model);

/// Returns a number that was written with a point or an exponent, if it is a whole one from 0 on
/// that was read exactly.
std::optional<std::uint64_t> whole_number(double value) noexcept;

/// Writes a step of a request, which wants the record's units in all layers.
void append_request(TraceWriter& writer, TraceRecord& record);

}  // namespace terrace::tuning
