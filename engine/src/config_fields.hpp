// Typed values of the JSON objects in a model's config.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::engine {

struct Range {
  double low;
  double high;
};

/// Reads one JSON object; errors name the file, the key and what is accepted.
class ConfigFields {
 public:
  ConfigFields(const nlohmann::json& object, std::string file)
      : object_(object), file_(std::move(file)) {}

  /// A key that holds null counts as missing: this is how Hugging Face writes "default".
  [[nodiscard]] const nlohmann::json* find(const char* key) const;

  [[nodiscard]] Result<std::size_t> count(const char* key, std::size_t high,
                                          std::optional<std::size_t> fallback = {}) const;
  [[nodiscard]] Result<double> number(const char* key, Range range,
                                      std::optional<double> fallback = {}) const;
  [[nodiscard]] Result<bool> flag(const char* key, bool fallback = false) const;
  [[nodiscard]] Result<std::string> text(const char* key, const char* fallback) const;
  /// A list of `size` numbers.
  [[nodiscard]] Result<std::vector<double>> numbers(const char* key, std::size_t size,
                                                    Range range) const;
  [[nodiscard]] Result<ConfigFields> object(const char* key) const;

  [[nodiscard]] const nlohmann::json& values() const noexcept { return object_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }

  /// A value for an error line: short, and without line breaks, even if the value has them.
  static std::string shown(const nlohmann::json& value);

 private:
  [[nodiscard]] tl::unexpected<Error> missing(const char* key) const;

  const nlohmann::json& object_;
  std::string file_;
};

}  // namespace terrace::engine
