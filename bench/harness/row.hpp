// One figure of a benchmark, as programs and people read it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::bench {

/// Keys keep the order in which they are written.
using Json = nlohmann::ordered_json;

enum class Better : std::uint8_t { higher, lower };

/// The figure that the same run found for another library's way to do the same work.
struct PeerFigure {
  std::string name;
  std::string version;
  double value = 0;
};

struct Row {
  std::string name;
  Json parameters = Json::object();
  std::optional<double> value;  ///< median; empty = `reason` says why
  std::string reason;
  bool failed = false;  ///< for another reason than that this machine lacks something
  std::string unit;
  Better better = Better::lower;
  std::size_t samples = 0;
  double spread = 0;  ///< between the quartiles, as a share of the median
  std::optional<PeerFigure> peer;

  /// How many times better than the peer; above 1 is better.
  [[nodiscard]] std::optional<double> ratio() const;
};

Json to_json(const Row& row);

/// Returns a table with one line per row that has a figure, and one per reason for the others.
std::string table(std::span<const Row> rows);

/// Returns a line for each reason why rows have no figure, with how many they are.
std::vector<std::string> not_measured(std::span<const Row> rows);

}  // namespace terrace::bench
