#include "fuzz/safetensors_reference.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fuzz/json_reference.hpp"

namespace terrace {
namespace {

using nlohmann::json;
using Place = std::pair<std::uint64_t, std::uint64_t>;

constexpr std::uint64_t header_most = 100'000'000;

const std::map<std::string, std::uint64_t>& bits_of_types() {
  static const std::map<std::string, std::uint64_t> bits{
      {"BOOL", 8},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  return bits;
}

/// The value of a JSON text; nothing where a key comes twice in an object.
std::optional<json> parse_once(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  bool twice = false;
  const auto watch = [&](int /*depth*/, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      twice |= !keys.back().insert(value.get<std::string>()).second;
    }
    return true;
  };
  json value = json::parse(text, watch, /*allow_exceptions=*/false);
  return twice || value.is_discarded() ? std::nullopt : std::optional(std::move(value));
}

bool are_sizes(const json& list) {
  return list.is_array() && std::ranges::all_of(list, &json::is_number_unsigned);
}

/// Bits of a tensor; nothing where their number, or one on the way to it, has more than 64 digits.
std::optional<std::uint64_t> bits_of(const json& shape, std::uint64_t type_bits) {
  std::uint64_t bits = 1;
  for (const json& size : shape) {
    if (__builtin_mul_overflow(bits, size.get<std::uint64_t>(), &bits)) return std::nullopt;
  }
  if (__builtin_mul_overflow(bits, type_bits, &bits)) return std::nullopt;
  return bits;
}

/// The place of a tensor; nothing if its entry is wrong.
std::optional<Place> place_of(const json& entry) {
  if (!entry.is_object()) return std::nullopt;
  for (const char* const field : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(field)) return std::nullopt;
  }
  const json& offsets = entry["data_offsets"];
  if (!entry["dtype"].is_string() || !are_sizes(entry["shape"]) || !are_sizes(offsets) ||
      offsets.size() != 2) {
    return std::nullopt;
  }
  const auto type = bits_of_types().find(entry["dtype"].get<std::string>());
  if (type == bits_of_types().end()) return std::nullopt;
  const Place place{offsets[0].get<std::uint64_t>(), offsets[1].get<std::uint64_t>()};
  const auto bits = bits_of(entry["shape"], type->second);
  const bool fits = bits && *bits % 8 == 0 && place.first <= place.second &&
                    place.second - place.first == *bits / 8;
  return fits ? std::optional(place) : std::nullopt;
}

bool is_metadata(const json& value) {
  return value.is_null() || (value.is_object() && std::ranges::all_of(value, &json::is_string));
}

}  // namespace

std::string safetensors_flaw(std::string_view file) {
  if (file.size() < 8) return "is too short";
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  if (length > header_most || length > file.size() - 8) return "its header is too long";
  const std::string_view text = file.substr(8, length);
  if (!is_json(text)) return "its header is no JSON";
  const std::optional<json> header = parse_once(text);
  if (!header) return "a key of its header comes twice, or a number has no value";
  if (!header->is_object()) return "its header is no object";
  std::vector<Place> places;
  for (const auto& [name, entry] : header->items()) {
    if (name == "__metadata__") {
      if (!is_metadata(entry)) return "its metadata are no strings";
      continue;
    }
    const auto place = place_of(entry);
    if (!place) return fmt::format("its entry {} is wrong", json(name).dump());
    places.push_back(*place);
  }
  std::ranges::sort(places);
  std::uint64_t end = 0;
  for (const Place& place : places) {
    if (place.first != std::exchange(end, place.second)) return "it has a hole or an overlap";
  }
  return end == file.size() - 8 - length ? "" : "its data do not end where its tensors do";
}

}  // namespace terrace
