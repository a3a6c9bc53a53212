// Names of a model: a fingerprint for traces, made of its config, and of the headers and a few
// places of its weights; and a digest of all of it for rows that are kept.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/list_folder.hpp"
#include "terrace/core/read_file.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t config_bytes_max = std::size_t{1} << 24;
// A header of safetensors is a length of 8 bytes and JSON; it is far below a hundredth of the rest.
constexpr std::uint64_t header_bytes_max = std::uint64_t{1} << 24;
// Training changes all weights. If only one tensor was changed, the change is seen if a place lies
// in the tensor: a tensor smaller than a 256th of a file may be missed.
constexpr std::uint64_t places = 256;
constexpr std::uint64_t place_bytes = 64;

tl::unexpected<Error> cannot_read(const std::filesystem::path& path) {
  return fail(Errc::io_error, "{}: cannot be read", path.string());
}

std::uint64_t add(std::uint64_t hash, const std::string& bytes) {
  return XXH64(bytes.data(), bytes.size(), hash);
}

/// Reads up to `count` bytes; fewer where the file ends.
Result<std::string> read_at(std::ifstream& file, const std::filesystem::path& path,
                            std::uint64_t offset, std::uint64_t count) {
  std::string bytes(count, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  if (file.bad()) return cannot_read(path);
  bytes.resize(static_cast<std::size_t>(file.gcount()));
  return bytes;
}

Result<std::uint64_t> add_weights(std::uint64_t hash, const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (!file || error) return cannot_read(path);
  hash = add(hash, fmt::format("{} {}", path.filename().string(), size));
  std::uint64_t header_bytes = 0;
  TERRACE_ASSIGN(const std::string length, read_at(file, path, 0, sizeof header_bytes));
  std::memcpy(&header_bytes, length.data(), length.size());
  TERRACE_ASSIGN(
      const std::string header,
      read_at(file, path, sizeof header_bytes, std::min({header_bytes, header_bytes_max, size})));
  hash = add(hash, header);
  for (std::uint64_t place = 0; place < places; ++place) {
    const std::uint64_t offset = size / places * place;
    TERRACE_ASSIGN(const std::string bytes, read_at(file, path, offset, place_bytes));
    hash = add(hash, bytes);
  }
  return hash;
}

/// Returns the model's files of weights, in the order of their names. Other files may lie beside
/// them: adapters, gates made for the model.
Result<std::vector<std::filesystem::path>> weight_files(const std::filesystem::path& folder) {
  TERRACE_ASSIGN(std::vector<std::filesystem::path> files, list_folder(folder));
  std::erase_if(files, [](const std::filesystem::path& file) {
    return !file.filename().string().starts_with("model") || file.extension() != ".safetensors";
  });
  return files;
}

/// Errors: invalid_argument where the folder is no model's.
Result<std::string> read_config(const std::filesystem::path& model_folder) {
  std::error_code unknown;
  if (!std::filesystem::exists(model_folder / "config.json", unknown)) {
    const bool there = std::filesystem::exists(model_folder, unknown);
    return fail(Errc::invalid_argument,
                "{}: {}; name the folder of a Hugging Face model, with config.json and "
                "model.safetensors",
                model_folder.string(), there ? "holds no config.json" : "there is no such folder");
  }
  return read_file(model_folder / "config.json", config_bytes_max);
}

/// A hash of bytes that come one after the other.
class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }

  void add(std::string_view bytes) {
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::string text() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

/// Adds a file's name, its size and all its bytes.
Status add_file(Digest& digest, const std::filesystem::path& path) {
  constexpr std::uint64_t piece = std::uint64_t{1} << 22;
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path, error);
  if (!file || error) return cannot_read(path);
  digest.add(fmt::format("{} {}\n", path.filename().string(), size));
  for (std::uint64_t at = 0; at < size; at += piece) {
    TERRACE_ASSIGN(const std::string bytes, read_at(file, path, at, std::min(piece, size - at)));
    if (bytes.empty()) return cannot_read(path);
    digest.add(bytes);
  }
  return {};
}

}  // namespace

Result<std::string> model_digest(const std::filesystem::path& model_folder) {
  Digest digest;
  TERRACE_ASSIGN(const std::string config, read_config(model_folder));
  digest.add(config);
  TERRACE_ASSIGN(const auto files, weight_files(model_folder));
  for (const std::filesystem::path& weights : files) TERRACE_TRY(add_file(digest, weights));
  return digest.text();
}

Result<std::string> model_fingerprint(const std::filesystem::path& model_folder) {
  TERRACE_ASSIGN(const std::string config, read_config(model_folder));
  std::uint64_t hash = add(0, config);
  TERRACE_ASSIGN(const auto files, weight_files(model_folder));
  for (const std::filesystem::path& weights : files) {
    TERRACE_ASSIGN(hash, add_weights(hash, weights));
  }
  return fmt::format("{:016x}", hash);
}

Status check_model(const TraceHead& head, const std::filesystem::path& model_folder) {
  TERRACE_ASSIGN(const std::string fingerprint, model_fingerprint(model_folder));
  if (head.model_fingerprint.empty()) {
    return fail(Errc::invalid_argument,
                "the trace was imported as of no model, not of {0}; import it with terrace trace "
                "convert --model {0}",
                model_folder.string());
  }
  if (fingerprint == head.model_fingerprint) return {};
  return fail(Errc::invalid_argument,
              "the trace is of another model ({}, {} layers), not of {}; record one with terrace "
              "run --trace",
              shown(head.model), head.shape.layers, model_folder.string());
}

}  // namespace terrace::tuning
