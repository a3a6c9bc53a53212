#include "program_files.hpp"

#include <cstdlib>
#include <system_error>

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;

/// Folders that may hold the project's files: those above the program, then the source tree that it
/// was built from.
std::vector<fs::path> roots() {
  constexpr int levels = 4;  // build/<preset>/bin/terrace lies three below the project
  std::vector<fs::path> found;
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (int level = 0; level < levels && folder.has_relative_path(); ++level) {
    found.push_back(folder);
    folder = folder.parent_path();
  }
  found.emplace_back(TERRACE_SOURCE_DIR);
  return found;
}

}  // namespace

Result<fs::path> bundled_model() {
  std::error_code error;
  for (const fs::path& root : roots()) {
    for (const char* const place : {"share/terrace/models/tiny", "models/tiny"}) {
      fs::path folder = root / place;
      if (fs::exists(folder / "config.json", error)) return folder;
    }
  }
  return fail(Errc::io_error, "the bundled model is not beside the program; name one with --model");
}

Result<fs::path> temporary_folder() {
  const char* const named = std::getenv("TMPDIR");
  const bool is_named = named != nullptr && *named != '\0';
  fs::path folder = is_named ? named : "/tmp";
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::is_directory(status)) return folder;
  const std::error_code reason = error ? error : std::make_error_code(std::errc::not_a_directory);
  return fail(Errc::io_error, "{}{}: {}", is_named ? "TMPDIR " : "", folder.string(),
              reason.message());
}

std::vector<fs::path> default_text_folders() {
  std::vector<fs::path> folders{"/usr/share/common-licenses"};
  for (const fs::path& root : roots()) {
    folders.push_back(root / "share/doc/terrace");
    folders.push_back(root / "docs");
  }
  return folders;
}

}  // namespace terrace::apps
