#include "terrace/engine/safetensors.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "json_file.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

constexpr std::size_t length_bytes = 8;
// The format's own limit: nobody needs more, and a damaged length must not cost gigabytes.
constexpr std::uint64_t header_bytes_max = 100'000'000;

/// Where a tensor lies in the file's data, and what to call it in errors.
struct Extent {
  std::size_t begin;
  std::size_t end;
  std::string_view name;
};

Result<std::span<const std::byte>> header_of(std::span<const std::byte> file,
                                             std::string_view label) {
  if (file.size() < length_bytes) {
    return fail(Errc::corrupt, "{}: {} bytes are no safetensors file", label, file.size());
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (length > header_bytes_max) {
    return fail(Errc::corrupt,
                "{}: the header's length {} is above {}; is this a safetensors "
                "file?",
                label, length, header_bytes_max);
  }
  if (length > file.size() - length_bytes) {
    return fail(Errc::corrupt,
                "{}: the header's length {} is beyond the file's {} bytes; copy the "
                "file again",
                label, length, file.size());
  }
  return file.subspan(length_bytes, length);
}

std::optional<Dtype> parse_element_type(const json& entry) {
  const auto found = entry.find("dtype");
  if (found == entry.end()) return std::nullopt;
  if (*found == "F32") return Dtype::f32;
  if (*found == "F16") return Dtype::f16;
  if (*found == "BF16") return Dtype::bf16;
  return std::nullopt;
}

/// Reads entry[key] as an array of sizes, or nothing.
std::optional<std::vector<std::size_t>> parse_sizes(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<std::size_t> sizes;
  for (const json& size : *found) {
    if (!size.is_number_unsigned()) return std::nullopt;
    sizes.push_back(size.get<std::size_t>());
  }
  return sizes;
}

Result<std::size_t> bytes_of(const Tensor& tensor) {
  std::size_t bytes = size_bytes(tensor.dtype);
  for (const std::size_t size : tensor.shape) {
    TERRACE_ASSIGN(bytes, checked_multiply(bytes, size));
  }
  return bytes;
}

/// Reads one entry of the header; `data` is everything behind the header.
Result<Tensor> parse_tensor(const json& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) return fail(Errc::corrupt, "its entry is no JSON object");
  const auto dtype = parse_element_type(entry);
  if (!dtype) return fail(Errc::unsupported, "its dtype is none of F32, F16, BF16");
  auto shape = parse_sizes(entry, "shape");
  if (!shape) return fail(Errc::corrupt, "its shape is no list of sizes");
  const auto offsets = parse_sizes(entry, "data_offsets");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return fail(Errc::corrupt, "its data_offsets are no [begin, end]");
  }
  const std::size_t begin = (*offsets)[0];
  const std::size_t end = (*offsets)[1];
  if (end > data.size()) {
    return fail(Errc::corrupt, "it ends at byte {} of {}; copy the file again", end, data.size());
  }
  Tensor tensor{*dtype, std::move(*shape), data.subspan(begin, end - begin)};
  TERRACE_ASSIGN(const std::size_t expected, bytes_of(tensor));
  if (expected != end - begin) {
    return fail(Errc::corrupt, "its shape needs {} bytes, its data_offsets span {}", expected,
                end - begin);
  }
  return tensor;
}

/// Tensors must tile the data: an overlap or a hole means that offsets are not to be trusted.
Status check_tiling(std::vector<Extent>& extents, std::size_t data_bytes, std::string_view label) {
  std::ranges::sort(extents, [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::size_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return fail(Errc::corrupt, "{}: tensor {} begins at byte {}, the one before it ends at {}",
                  label, extent.name, extent.begin, end);
    }
    end = extent.end;
  }
  if (end != data_bytes) {
    return fail(Errc::corrupt, "{}: {} bytes follow the last tensor", label, data_bytes - end);
  }
  return {};
}

/// A name goes into error lines, so it has to be one line itself.
bool is_printable(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  });
}

/// A shard lies beside its index; anything else would read files the folder does not own.
bool is_plain_file_name(const std::filesystem::path& name) {
  return is_printable(name.native()) && name == name.filename() && name != "." && name != "..";
}

/// Returns the tensors that the index lists, by the shard they are in.
Result<std::map<std::string, std::vector<std::string>>> read_index(
    const std::filesystem::path& path) {
  TERRACE_ASSIGN(const json index, read_json_object(path));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object() || weight_map->empty()) {
    return fail(Errc::corrupt, "{}: weight_map is missing or empty", path.string());
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!is_printable(tensor) || !shard.is_string() ||
        !is_plain_file_name(shard.get_ref<const std::string&>())) {
      return fail(Errc::corrupt, "{}: weight_map must map tensor names to files of this folder",
                  path.string());
    }
    shards[shard.get<std::string>()].push_back(tensor);
  }
  return shards;
}

}  // namespace

Result<TensorMap> parse_safetensors(std::span<const std::byte> file, std::string_view label) try {
  TERRACE_ASSIGN(const std::span<const std::byte> header_text, header_of(file, label));
  TERRACE_ASSIGN(const json header, parse_json_object(header_text, label));
  const auto data = file.subspan(length_bytes + header_text.size());
  TensorMap tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    if (!is_printable(name)) {
      return fail(Errc::corrupt, "{}: a tensor's name is empty or holds control characters", label);
    }
    auto tensor = parse_tensor(entry, data);
    if (!tensor) {
      return tl::unexpected(tensor.error().while_doing(fmt::format("{}: tensor {}", label, name)));
    }
    const auto begin = static_cast<std::size_t>(tensor->bytes.data() - data.data());
    const std::size_t end = begin + tensor->bytes.size();
    const auto placed = tensors.emplace(name, std::move(*tensor)).first;
    extents.push_back({begin, end, placed->first});
  }
  TERRACE_TRY(check_tiling(extents, data.size(), label));
  return tensors;
} catch (const std::bad_alloc&) {
  return fail(Errc::out_of_memory, "{}: no memory for the header", label);
}

Result<Safetensors> Safetensors::open(const std::filesystem::path& folder) {
  Safetensors result;
  result.folder_ = folder;
  const std::filesystem::path single = folder / "model.safetensors";
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (is_there(single)) {
    TERRACE_ASSIGN(MappedFile file, MappedFile::open(single));
    TERRACE_ASSIGN(result.tensors_, parse_safetensors(file.bytes(), single.string()));
    result.files_.push_back(std::move(file));
  } else if (is_there(index)) {
    TERRACE_TRY(result.open_shards(index));
  } else {
    return fail(Errc::io_error,
                "{}: holds neither model.safetensors nor "
                "model.safetensors.index.json",
                folder.string());
  }
  return result;
}

Status Safetensors::open_shards(const std::filesystem::path& index_path) {
  TERRACE_ASSIGN(const auto shards, read_index(index_path));
/// True for links to nothing and what may not be looked at, too: opening says what is wrong there.
bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  return status.type() != std::filesystem::file_type::not_found;
}

  for (const auto& [shard, names] : shards) {
    const std::filesystem::path path = folder_ / shard;
    TERRACE_ASSIGN(MappedFile file, MappedFile::open(path));
    TERRACE_ASSIGN(TensorMap tensors, parse_safetensors(file.bytes(), path.string()));
    for (const std::string& name : names) {
      auto node = tensors.extract(name);
      if (node.empty()) {
        return fail(Errc::corrupt, "{}: lacks tensor {}, which {} says is in it", path.string(),
                    name, index_path.filename().string());
      }
      tensors_.insert(std::move(node));
    }
    files_.push_back(std::move(file));
  }
  return {};
}

Result<Tensor> Safetensors::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fail(Errc::corrupt, "{}: has no tensor {}", folder_.string(), name);
  }
  return found->second;
}

}  // namespace terrace::engine
