#include "terrace/core/nearest_name.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace terrace {
namespace {

std::string in_small_letters(std::string_view name) {
  std::string small(name);
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return small;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // The table is computed row by row, and only one row is kept.
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  const std::string small = in_small_letters(name);
  return nearest_name(name, names, [&small](std::string_view each) {
    return edit_distance(small, in_small_letters(each));
  });
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names,
                              FunctionRef<std::size_t(std::string_view)> distance_to) {
  std::string_view nearest;
  std::size_t nearest_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string_view each : names) {
    const std::size_t distance = distance_to(each);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = each;
    }
  }
  return nearest;
}

}  // namespace terrace
