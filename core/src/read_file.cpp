#include "terrace/core/read_file.hpp"

#include "terrace/core/input_file.hpp"

namespace terrace {

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  TERRACE_ASSIGN(InputFile file, InputFile::open(path));
  return file.read_whole(bytes_max);
}

}  // namespace terrace
