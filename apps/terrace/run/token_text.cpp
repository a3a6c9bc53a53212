#include "run/token_text.hpp"

#include <cstdint>
#include <filesystem>
#include <utility>

#include "program_files.hpp"
#include "terrace/core/input_file.hpp"
#include "terrace/core/list_folder.hpp"

namespace terrace::apps {
namespace {

namespace fs = std::filesystem;

/// Regular files of a folder by name; links would repeat what they point to.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files = list_folder(folder).value_or(std::vector<fs::path>());
  std::erase_if(files, [](const fs::path& file) {
    std::error_code error;
    return fs::symlink_status(file, error).type() != fs::file_type::regular;
  });
  return files;
}

/// Reads the files of the first default folder that has any.
Result<std::string> read_default_text(std::size_t wanted, std::string& bytes) {
  for (const fs::path& folder : default_text_folders()) {
    const std::vector<fs::path> files = files_of(folder);
    for (const fs::path& file : files) {
      TERRACE_ASSIGN(InputFile input, InputFile::open(file));
      TERRACE_ASSIGN(const std::string read, input.read_up_to(wanted - bytes.size()));
      bytes += read;
    }
    if (!files.empty()) return folder.string();
  }
  return fail(Errc::io_error, "there is no default text on this machine; name one with --text");
}

TokenId read_id(const char* bytes) {
  std::uint32_t id = 0;
  for (int i = 3; i >= 0; --i) id = id << 8 | static_cast<unsigned char>(bytes[i]);
  return TokenId{id};
}

Result<TokenText> read_ids(const std::string& path, std::size_t vocabulary, std::size_t wanted) {
  constexpr std::size_t id_bytes = 4;
  TERRACE_ASSIGN(InputFile input, InputFile::open_named(path));
  TERRACE_ASSIGN(const std::string bytes, input.read_up_to(wanted * id_bytes));
  if (input.known_bytes() % id_bytes != 0) {
    return fail(Errc::invalid_argument,
                "--tokens {}: {} bytes are no whole number of 32-bit ids; use tools/tokenize.py",
                path, input.known_bytes());
  }
  TokenText text{.path = input.name()};
  for (std::size_t i = 0; i < bytes.size(); i += id_bytes) {
    text.tokens.push_back(read_id(bytes.data() + i));
    if (index(text.tokens.back()) < vocabulary) continue;
    return fail(Errc::invalid_argument,
                "--tokens {}: id {} at position {} is outside the model's vocabulary of {}", path,
                index(text.tokens.back()), i / id_bytes, vocabulary);
  }
  return text;
}

Result<TokenText> read_text(const std::string& path, std::size_t wanted) {
  TokenText text;
  std::string bytes;
  if (path.empty()) {
    TERRACE_ASSIGN(text.path, read_default_text(wanted, bytes));
  } else {
    TERRACE_ASSIGN(InputFile input, InputFile::open_named(path));
    TERRACE_ASSIGN(bytes, input.read_up_to(wanted));
    text.path = input.name();
  }
  text.tokens.reserve(bytes.size());
  for (const char c : bytes) text.tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  return text;
}

}  // namespace

Result<TokenText> read_tokens(const TextSource& source, std::size_t vocabulary,
                              std::size_t wanted) {
  const bool ids = !source.tokens_file.empty();
  if (!ids && vocabulary != byte_vocabulary) {
    return fail(Errc::invalid_argument,
                "the model has {} tokens, not bytes: turn the text into ids with tools/tokenize.py "
                "and give them with --tokens",
                vocabulary);
  }
  TERRACE_ASSIGN(TokenText text, ids ? read_ids(source.tokens_file, vocabulary, wanted)
                                     : read_text(source.text_file, wanted));
  if (text.tokens.size() < wanted) {
    return fail(Errc::invalid_argument,
                "{}: has {} tokens, {} are needed; give a longer text, or less {}", text.path,
                text.tokens.size(), wanted, source.counts);
  }
  return text;
}

}  // namespace terrace::apps
