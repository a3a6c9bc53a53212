#include "harness/row.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace terrace::bench {
namespace {

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

/// "21.4 GB/s", "3.31 ms": three digits and a prefix that people read.
std::string quantity(double value, const std::string& unit) {
  if (unit == "share" || unit == "ratio") return fmt::format("{:.3f}", value);
  struct Prefix {
    double size;
    const char* name;
  };
  constexpr std::array prefixes{Prefix{1e9, "G"}, Prefix{1e6, "M"},  Prefix{1e3, "k"},
                                Prefix{1, ""},    Prefix{1e-3, "m"}, Prefix{1e-6, "µ"},
                                Prefix{1e-9, "n"}};
  const auto prefix = std::ranges::find_if(
      prefixes, [value](const Prefix& candidate) { return value >= candidate.size; });
  const Prefix& chosen = prefix == prefixes.end() ? prefixes[3] : *prefix;
  const std::string_view shown = unit == "1/s" ? "/s" : std::string_view(unit);
  return fmt::format("{:.3g} {}{}", value / chosen.size, chosen.name, shown);
}

/// A figure of small sizes must not pass for that of the sizes in a row's name.
std::string shown_name(const Row& row) {
  return row.name + (row.parameters.value("quick", false) ? " (quick)" : "");
}

std::string peer_of(const Row& row) {
  if (!row.peer) return "";
  return fmt::format("{} {}: {}", row.peer->name, row.peer->version,
                     quantity(row.peer->value, row.unit));
}

}  // namespace

std::optional<double> Row::ratio() const {
  if (!value || !peer || *value <= 0 || peer->value <= 0) return std::nullopt;
  return better == Better::lower ? peer->value / *value : *value / peer->value;
}

Json to_json(const Row& row) {
  Json json = {{"name", row.name},
               {"parameters", row.parameters},
               {"value", number_or_null(row.value)},
               {"unit", row.unit},
               {"better", row.better == Better::lower ? "lower" : "higher"},
               {"samples", row.samples},
               {"spread", row.spread},
               {"peer", nullptr},
               {"ratio", number_or_null(row.ratio())}};
  if (!row.value) json["reason"] = row.reason;
  if (row.peer) {
    json["peer"] = {
        {"name", row.peer->name}, {"version", row.peer->version}, {"value", row.peer->value}};
  }
  return json;
}

std::string table(std::span<const Row> rows) {
  if (rows.empty()) return {};
  std::size_t widest = 0;
  for (const Row& row : rows) {
    if (row.value) widest = std::max(widest, shown_name(row).size());
  }
  std::string text;
  const auto add = [&](std::string_view name, std::string_view value, std::string_view spread,
                       std::string_view ratio, std::string_view peer) {
    std::string line =
        fmt::format("{:<{}}  {:>12} {:>6}  {:>6}  {}", name, widest, value, spread, ratio, peer);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add("row", "value", "spread", "better", "peer");
  for (const Row& row : rows) {
    if (!row.value) continue;
    const auto ratio = row.ratio();
    add(shown_name(row), quantity(*row.value, row.unit), fmt::format("±{:.0f}%", 50 * row.spread),
        ratio ? fmt::format("{:.2f}x", *ratio) : "", peer_of(row));
  }
  const std::vector<std::string> missing = not_measured(rows);
  if (widest == 0) text.clear();
  for (const std::string& line : missing) text += line + '\n';
  return text;
}

std::vector<std::string> not_measured(std::span<const Row> rows) {
  std::vector<std::pair<const Row*, std::size_t>> reasons;  // the first row of each, and how many
  for (const Row& row : rows) {
    if (row.value) continue;
    const auto same = std::ranges::find_if(
        reasons, [&](const auto& reason) { return reason.first->reason == row.reason; });
    if (same == reasons.end()) {
      reasons.emplace_back(&row, 1);
    } else {
      ++same->second;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [row, count] : reasons) {
    const std::string more = count > 1 ? fmt::format(" and {} more", count - 1) : "";
    lines.push_back(fmt::format("not measured: {}{}: {}", row->name, more, row->reason));
  }
  return lines;
}

}  // namespace terrace::bench
