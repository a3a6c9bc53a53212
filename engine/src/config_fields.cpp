#include "config_fields.hpp"

#include <algorithm>
#include <cstdint>

namespace terrace::engine {

using nlohmann::json;

const json* ConfigFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Result<std::size_t> ConfigFields::count(const char* key, std::size_t high,
                                        std::optional<std::size_t> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) return missing(key);
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() == 0 ||
      value->get<std::uint64_t>() > high) {
    return fail(Errc::invalid_argument, "{}: {} is {}; an integer from 1 to {} is needed", file_,
                key, shown(*value), high);
  }
  return value->get<std::size_t>();
}

Result<double> ConfigFields::number(const char* key, Range range,
                                    std::optional<double> fallback) const {
  const json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr) return missing(key);
  if (!value->is_number() || !(value->get<double>() >= range.low) ||
      !(value->get<double>() <= range.high)) {
    return fail(Errc::invalid_argument, "{}: {} is {}; a number from {} to {} is needed", file_,
                key, shown(*value), range.low, range.high);
  }
  return value->get<double>();
}

Result<bool> ConfigFields::flag(const char* key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return fail(Errc::invalid_argument, "{}: {} is {}; true or false is needed", file_, key,
                shown(*value));
  }
  return value->get<bool>();
}

Result<std::string> ConfigFields::text(const char* key, const char* fallback) const {
  const json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    return fail(Errc::invalid_argument, "{}: {} is {}; a string is needed", file_, key,
                shown(*value));
  }
  return value->get<std::string>();
}

Result<std::vector<double>> ConfigFields::numbers(const char* key, std::size_t size,
                                                  Range range) const {
  const json* value = find(key);
  if (value == nullptr) return missing(key);
  const bool fits = value->is_array() && value->size() == size &&
                    std::ranges::all_of(*value, [&](const json& each) {
                      return each.is_number() && each.get<double>() >= range.low &&
                             each.get<double>() <= range.high;
                    });
  if (!fits) {
    return fail(Errc::invalid_argument,
                "{}: {} is {}; a list of {} numbers from {} to {} is needed", file_, key,
                shown(*value), size, range.low, range.high);
  }
  return value->get<std::vector<double>>();
}

Result<ConfigFields> ConfigFields::object(const char* key) const {
  const json* value = find(key);
  if (value == nullptr || !value->is_object()) {
    return fail(Errc::invalid_argument, "{}: {} is {}; an object is needed", file_, key,
                value == nullptr ? "missing" : shown(*value));
  }
  return ConfigFields(*value, file_ + ": " + key);
}

std::string ConfigFields::shown(const json& value) {
  return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
}

tl::unexpected<Error> ConfigFields::missing(const char* key) const {
  return fail(Errc::invalid_argument, "{}: {} is missing", file_, key);
}

}  // namespace terrace::engine
