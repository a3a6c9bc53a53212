// Strong ids. An id names a thing; a count or a size is a plain std::size_t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace terrace {

enum class SequenceId : std::uint64_t {};
enum class LayerId : std::uint32_t {};
enum class HeadId : std::uint32_t {};   ///< a KV head unless a name says query head
enum class TokenId : std::uint32_t {};  ///< a vocabulary entry, not a position

/// Returns the id's number, for indexing.
template <typename Id>
  requires std::is_enum_v<Id>
constexpr std::size_t index(Id id) noexcept {
  return static_cast<std::size_t>(id);
}

}  // namespace terrace
