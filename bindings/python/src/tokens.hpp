// Ids of tokens, hashes in their place, and the salt of a tenant, as Python gives them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace terrace::python {

/// Reads ids of tokens: one dimension of an array of whole numbers in memory of the host, or a list
/// of whole numbers. Errors: raises InvalidArgument, which names the argument and a wrong id's
/// place.
[[nodiscard]] std::vector<std::uint32_t> read_tokens(std::string_view name, GivenObject given);

/// Hashes of one size, one behind the other.
struct Hashes {
  std::string values;
  std::size_t count = 0;
  std::size_t bytes = 0;  ///< of one
};

/// Reads a list of bytes objects; None is no hash. Errors: raises InvalidArgument, which names the
/// place of what is no bytes, or has another size than the first.
[[nodiscard]] Hashes read_hashes(std::string_view name, GivenObject given);

/// Reads text, as its bytes in UTF-8, or bytes; None is no salt. Errors: raises InvalidArgument,
/// which never shows the salt.
[[nodiscard]] std::string read_salt(GivenObject given);

}  // namespace terrace::python
