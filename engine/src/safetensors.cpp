#include "terrace/engine/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "json_file.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

constexpr std::size_t length_bytes = 8;
// The format's own limit: no file needs more, and a damaged length must not cost gigabytes.
constexpr std::uint64_t header_bytes_max = 100'000'000;

/// The place of a tensor in the file's data, and its name in errors.
struct Extent {
  std::size_t begin;
  std::size_t end;
  std::string_view name;
};

struct ElementType {
  std::string_view name;
  std::size_t bits;
  std::optional<Dtype> dtype = {};
};

/// All that the format has; files may hold tensors that no part of a model needs.
constexpr std::array element_types{
    ElementType{"F32", 32, Dtype::f32},
    ElementType{"F16", 16, Dtype::f16},
    ElementType{"BF16", 16, Dtype::bf16},
    ElementType{"BOOL", 8},
    ElementType{"F4", 4},
    ElementType{"F6_E2M3", 6},
    ElementType{"F6_E3M2", 6},
    ElementType{"U8", 8},
    ElementType{"I8", 8},
    ElementType{"F8_E5M2", 8},
    ElementType{"F8_E4M3", 8},
    ElementType{"F8_E8M0", 8},
    ElementType{"F8_E4M3FNUZ", 8},
    ElementType{"F8_E5M2FNUZ", 8},
    ElementType{"I16", 16},
    ElementType{"U16", 16},
    ElementType{"I32", 32},
    ElementType{"U32", 32},
    ElementType{"C64", 64},
    ElementType{"F64", 64},
    ElementType{"I64", 64},
    ElementType{"U64", 64},
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

const ElementType* find_element_type(const json& entry) {
  const auto found = entry.find("dtype");
  if (found == entry.end()) return nullptr;
  const auto type = std::ranges::find_if(
      element_types, [&](const ElementType& each) { return *found == each.name; });
  return type == element_types.end() ? nullptr : &*type;
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

Result<std::size_t> bytes_of(const std::vector<std::size_t>& shape, const ElementType& type) {
  std::size_t elements = 1;
  for (const std::size_t size : shape) {
    TERRACE_ASSIGN(elements, checked_multiply(elements, size));
  }
  TERRACE_ASSIGN(const std::size_t bits, checked_multiply(elements, type.bits));
  if (bits % 8 != 0) return fail(Errc::corrupt, "its {} bits are no whole number of bytes", bits);
  return bits / 8;
}

/// Reads one entry of the header; `data` is everything after the header.
Result<Tensor> parse_tensor(const json& entry, std::span<const std::byte> data) {
  if (!entry.is_object()) return fail(Errc::corrupt, "its entry is no JSON object");
  const ElementType* const type = find_element_type(entry);
  if (type == nullptr) return fail(Errc::corrupt, "its dtype is none that the format has");
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
  TERRACE_ASSIGN(const std::size_t expected, bytes_of(*shape, *type));
  if (expected != end - begin) {
    return fail(Errc::corrupt, "its shape needs {} bytes, its data_offsets span {}", expected,
                end - begin);
  }
  return Tensor{type->name, type->dtype, std::move(*shape), data.subspan(begin, end - begin)};
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
                  label, shown_name(extent.name), extent.begin, end);
    }
    end = extent.end;
  }
  if (end != data_bytes) {
    return fail(Errc::corrupt, "{}: {} bytes follow the last tensor", label, data_bytes - end);
  }
  return {};
}

/// Strings to strings, or nothing at all: what the format lets tools say about a file.
Status check_metadata(const json& metadata, std::string_view label) {
  const bool fits = metadata.is_null() ||
                    (metadata.is_object() && std::ranges::all_of(metadata, [](const json& value) {
                       return value.is_string();
                     }));
  if (fits) return {};
  return fail(Errc::corrupt, "{}: its __metadata__ does not map names to strings", label);
}

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
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
      return fail(Errc::corrupt, "{}: weight_map must map tensor names to files of this folder",
                  path.string());
    }
    shards[shard.get<std::string>()].push_back(tensor);
  }
  return shards;
}

/// True for links to nothing and what may not be looked at, too: opening says what is wrong there.
bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  return status.type() != std::filesystem::file_type::not_found;
}

}  // namespace

std::string shown_name(std::string_view name) {
  if (is_printable(name)) return std::string(name);
  return json(name).dump(-1, ' ', true, json::error_handler_t::replace);
}

Result<TensorMap> parse_safetensors(std::span<const std::byte> file, std::string_view label) try {
  TERRACE_ASSIGN(const std::span<const std::byte> header_text, header_of(file, label));
  TERRACE_ASSIGN(const json header, parse_json_object(header_text, label));
  const auto data = file.subspan(length_bytes + header_text.size());
  TensorMap tensors;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      TERRACE_TRY(check_metadata(entry, label));
      continue;
    }
    auto tensor = parse_tensor(entry, data);
    if (!tensor) {
      return tl::unexpected(
          tensor.error().while_doing(fmt::format("{}: tensor {}", label, shown_name(name))));
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

Result<std::map<std::string, std::string>> parse_safetensors_metadata(
    std::span<const std::byte> file, std::string_view label) {
  TERRACE_ASSIGN(const std::span<const std::byte> header_text, header_of(file, label));
  TERRACE_ASSIGN(const json header, parse_json_object(header_text, label));
  const auto metadata = header.find("__metadata__");
  if (metadata == header.end() || metadata->is_null()) return {};
  TERRACE_TRY(check_metadata(*metadata, label));
  return metadata->get<std::map<std::string, std::string>>();
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
    return fail(
        Errc::io_error,
        "{}: holds neither model.safetensors nor model.safetensors.index.json; name a folder "
        "with the model's weights in that form",
        folder.string());
  }
  return result;
}

Status Safetensors::open_shards(const std::filesystem::path& index_path) {
  TERRACE_ASSIGN(const auto shards, read_index(index_path));
  for (const auto& [shard, names] : shards) {
    const std::filesystem::path path = folder_ / shard;
    TERRACE_ASSIGN(MappedFile file, MappedFile::open(path));
    TERRACE_ASSIGN(TensorMap tensors, parse_safetensors(file.bytes(), path.string()));
    for (const std::string& name : names) {
      auto node = tensors.extract(name);
      if (node.empty()) {
        return fail(Errc::corrupt, "{}: lacks tensor {}, which {} says is in it", path.string(),
                    shown_name(name), index_path.filename().string());
      }
      tensors_.insert(std::move(node));
    }
    tensors_.merge(
        tensors);  // the index may omit some: the code that needs a missing one reports it
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
