// The bytes of messages: each message lists its fields once, for writing and for reading.
//
//   template <typename Fields> void list_fields(Fields& fields, Find& message) {
//     fields(message.root, message.tokens, message.keys);
//   }
//
// Numbers are little-endian. A text or a list has its length before it: 2 bytes, 4 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "terrace/tiers/chunk_key.hpp"
#include "terrace/tiers/part.hpp"

namespace terrace::node::wire {

/// Appends fields to bytes.
class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& to) noexcept : to_(to) {}

  template <typename... Values>
  void operator()(const Values&... values) {
    (add(values), ...);
  }

 private:
  template <typename Value>
  void add(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      add(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::is_integral_v<Value>) {
      for (std::size_t i = 0; i < sizeof value; ++i) {
        to_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
      }
    } else {
      list_fields(*this, const_cast<Value&>(value));  // reads alone: the list is of references
    }
  }
  void add(const std::string& text) {
    add(static_cast<std::uint16_t>(text.size()));
    for (const char each : text) to_.push_back(static_cast<std::byte>(each));
  }
  void add(const tiers::Digest& digest) { to_.insert(to_.end(), digest.begin(), digest.end()); }
  template <typename Value>
  void add(const std::vector<Value>& list) {
    add(static_cast<std::uint32_t>(list.size()));
    for (const Value& value : list) add(value);
  }

  std::vector<std::byte>& to_;
};

/// Takes fields off bytes. Once they run out all further fields are zero or empty, and failed().
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> from) noexcept : from_(from) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (take(values), ...);
  }

  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] bool at_end() const noexcept { return from_.empty(); }

 private:
  [[nodiscard]] std::span<const std::byte> take_bytes(std::size_t bytes) noexcept {
    if (bytes > from_.size()) {
      failed_ = true;
      from_ = {};
      return {};
    }
    const auto taken = from_.first(bytes);
    from_ = from_.subspan(bytes);
    return taken;
  }
  template <typename Value>
  void take(Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      std::underlying_type_t<Value> number{};
      take(number);
      value = static_cast<Value>(number);
    } else if constexpr (std::is_integral_v<Value>) {
      std::uint64_t number = 0;
      const auto bytes = take_bytes(sizeof value);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        number |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
      }
      value = static_cast<Value>(number);
    } else {
      list_fields(*this, value);
    }
  }
  void take(std::string& text) {
    std::uint16_t size = 0;
    take(size);
    text.clear();
    for (const std::byte each : take_bytes(size)) text.push_back(static_cast<char>(each));
  }
  void take(tiers::Digest& digest) {
    const auto bytes = take_bytes(digest.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) digest[i] = bytes[i];
  }
  /// Grows with what is there: a count alone takes no memory.
  template <typename Value>
  void take(std::vector<Value>& list) {
    std::uint32_t count = 0;
    take(count);
    list.clear();
    for (std::uint32_t i = 0; i < count && !failed_; ++i) take(list.emplace_back());
  }

  std::span<const std::byte> from_;
  bool failed_ = false;
};

}  // namespace terrace::node::wire

namespace terrace::tiers {

// Found by argument-dependent look-up.
template <typename Fields>
void list_fields(Fields& fields, ChunkKey& key) {
  fields(key.high, key.low);
}
template <typename Fields>
void list_fields(Fields& fields, PartName& name) {
  fields(name.kind, name.layer, name.number);
}

}  // namespace terrace::tiers
