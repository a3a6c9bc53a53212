#include "terrace/core/list_folder.hpp"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "terrace/core/file_errors.hpp"

namespace terrace {
namespace {

struct Close {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

Result<std::vector<std::filesystem::path>> list_folder(const std::filesystem::path& folder) {
  const std::unique_ptr<DIR, Close> open(::opendir(folder.c_str()));
  if (!open) return cannot_read(folder, errno);
  std::vector<std::filesystem::path> paths;
  while (true) {
    errno = 0;  // readdir returns nothing at the end, too
    const dirent* const entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) return cannot_read(folder, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(folder / name);
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace terrace
