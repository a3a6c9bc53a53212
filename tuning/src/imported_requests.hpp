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
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<UnitKey>(count_));
    if (is_new) ++count_;
    return found->second;
  }
  /// Gives a number to a unit that has no name, and never comes again.
  UnitKey next() noexcept { return static_cast<UnitKey>(count_++); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

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
  std::size_t count_ = 0;
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
