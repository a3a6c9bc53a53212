#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/mutation.hpp"

namespace terrace {

Corpus read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TERRACE_FUZZ_CORPUS "/" + folder)) {
    paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  Corpus corpus;
  for (const auto& path : paths) {
    std::ifstream stream(path, std::ios::binary);
    corpus.push_back({path.filename().string(), {std::istreambuf_iterator<char>(stream), {}}});
  }
  return corpus;
}

}  // namespace terrace
