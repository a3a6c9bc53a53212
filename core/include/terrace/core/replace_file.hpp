// Writing a file whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace {

/// Writes `content` under a temporary name beside `path` and renames it, so that nobody ever reads
/// half of it and an error leaves what was there.
///
/// Errors   io_error naming the file and the system's reason
[[nodiscard]] Status replace_file(const std::string& path, std::string_view content);

/// Says beforehand what is sure to keep replace_file() from writing `path`, so that no work is done
/// in vain.
///
/// Errors   io_error naming the file: a folder, or in one that is not there or may not be written
[[nodiscard]] Status check_replaceable(const std::string& path);

/// A file as someone named it: {"--report", "tuned.html"}. No path: none was named.
struct NamedFile {
  std::string_view name;
  std::string path;
};

/// Says beforehand whether a target would be written over a source or over another target, by
/// whatever path each is named, and whether replace_file() is sure to fail for one of them.
///
/// Errors   invalid_argument naming both files; those of check_replaceable()
[[nodiscard]] Status check_targets(const std::vector<NamedFile>& targets,
                                   const std::vector<NamedFile>& sources);

/// Returns the name under which a file is written until it is whole: beside `path`, and no other
/// writer's, in this process or another.
[[nodiscard]] std::string temporary_name(const std::string& path);

}  // namespace terrace
