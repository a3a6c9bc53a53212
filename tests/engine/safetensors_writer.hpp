// Writes safetensors files for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace terrace {

/// Puts the length before a header and the data after it.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + data;
}

/// Collects F32 tensors and writes them as one file.
class SafetensorsWriter {
 public:
  SafetensorsWriter& add(const std::string& name, const std::vector<std::size_t>& shape,
                         float first = 0.5F) {
    std::size_t count = 1;
    for (const std::size_t extent : shape) count *= extent;
    const std::size_t begin = data_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const float value = first + static_cast<float>(i % 7) / 8;
      data_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    header_[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }

  /// Adds a tensor of another element type.
  SafetensorsWriter& add_raw(const std::string& name, const char* element_type,
                             const std::vector<std::size_t>& shape, const std::string& bytes) {
    const std::size_t begin = data_.size();
    data_ += bytes;
    header_[name] = {
        {"dtype", element_type}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }

  /// Says something of the file as a whole.
  SafetensorsWriter& add_metadata(const char* key, const char* value) {
    header_["__metadata__"][key] = value;
    return *this;
  }

  [[nodiscard]] std::string file() const { return safetensors_file(header_.dump(), data_); }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

}  // namespace terrace
