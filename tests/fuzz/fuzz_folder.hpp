// A folder for inputs that are read from files: in memory where the system has such.
#pragma once

#include <unistd.h>

#include <filesystem>

#include "core/temporary_folder.hpp"

namespace terrace {

inline std::filesystem::path fuzz_folder_parent() {
  constexpr const char* in_memory = "/dev/shm";
  return ::access(in_memory, W_OK) == 0 ? std::filesystem::path(in_memory)
                                        : std::filesystem::temp_directory_path();
}

}  // namespace terrace
