// The text that `terrace run` prints for people.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "machine.hpp"
#include "run/figures.hpp"

namespace terrace::apps {

/// Returns head and table, at most 110 columns wide.
std::string run_table(const RunJob& job, const Machine& machine,
                      std::span<const PolicyFigures> figures);

/// Returns a number with so many decimals, or "-" for no value.
std::string decimals(const std::optional<double>& value, int digits);

/// Returns the table alone: a row for each policy. `bytes` names the column of bits.
std::string figures_table(std::span<const PolicyFigures> figures, bool bytes);

}  // namespace terrace::apps
