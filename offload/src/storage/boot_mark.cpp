#include "boot_mark.hpp"

#include <xxhash.h>

#include <string>

#include "terrace/core/read_file.hpp"

namespace terrace::offload {

std::uint64_t boot_mark() {
  constexpr std::size_t bytes_max = 64;  // a UUID and a line's end
  const Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", bytes_max);
  return text ? XXH3_64bits(text->data(), text->size()) : 0;
}

}  // namespace terrace::offload
