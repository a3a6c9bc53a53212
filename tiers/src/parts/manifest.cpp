#include "terrace/tiers/manifest.hpp"

#include <xxhash.h>

#include <algorithm>
#include <string_view>

#include "little_endian.hpp"

namespace terrace::tiers {
namespace {

constexpr std::string_view magic = "TRCMANIF";
constexpr std::uint32_t format_version = 2;
constexpr std::size_t checked_from = 16;  ///< after magic and checksum
constexpr std::size_t head_bytes = checked_from + 36;
constexpr std::size_t part_bytes = 28;
constexpr std::uint64_t bytes_max = std::uint64_t{1} << 63;

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::vector<std::byte> write_checked(const Manifest& manifest) {
  std::vector<std::byte> to;
  to.reserve(head_bytes + manifest.parts().size() * part_bytes);
  append_little_endian(to, format_version);
  append_little_endian(to, static_cast<std::uint32_t>(manifest.parts().size()));
  append_little_endian(to, manifest.chunk().high);
  append_little_endian(to, manifest.chunk().low);
  append_little_endian(to, manifest.tokens());
  append_little_endian(to, manifest.owner());
  for (const Part& part : manifest.parts()) {
    append_little_endian(to, static_cast<std::uint32_t>(part.name.kind));
    append_little_endian(to, part.name.layer);
    append_little_endian(to, part.name.number);
    append_little_endian(to, part.bytes);
    append_little_endian(to, part.checksum);
  }
  return to;
}

Part take_part(std::span<const std::byte>& from) {
  Part part;
  part.name.kind = static_cast<PartKind>(take_little_endian<std::uint32_t>(from));
  part.name.layer = take_little_endian<std::uint32_t>(from);
  part.name.number = take_little_endian<std::uint32_t>(from);
  part.bytes = take_little_endian<std::uint64_t>(from);
  part.checksum = take_little_endian<std::uint64_t>(from);
  return part;
}

bool is_known(PartKind kind) noexcept {
  return kind == PartKind::rows || kind == PartKind::index || kind == PartKind::state;
}

Status check_parts(std::span<const Part> parts) {
  std::uint64_t bytes = 0;
  bool any_beside_index = false;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (!is_known(part.name.kind) || part.bytes == 0 || part.bytes > bytes_max - bytes) {
      return fail(Errc::invalid_argument, "{} of {} bytes cannot be a part of a chunk",
                  to_string(part.name), part.bytes);
    }
    if (i > 0 && part.name == parts[i - 1].name) {
      return fail(Errc::invalid_argument, "a chunk has two parts {}", to_string(part.name));
    }
    bytes += part.bytes;
    any_beside_index = any_beside_index || part.name.kind != PartKind::index;
  }
  if (!any_beside_index || parts.size() > Manifest::parts_max) {
    return fail(Errc::invalid_argument,
                "a chunk of {} parts: it needs rows or states, and has at most {} parts",
                parts.size(), Manifest::parts_max);
  }
  return {};
}

MissReason reason_of(PartState state) noexcept {
  switch (state) {
    case PartState::lost:
      return MissReason::evicted;
    case PartState::late:
      return MissReason::late;
    case PartState::intact:
    case PartState::corrupt:
      break;
  }
  return MissReason::corrupt;
}

}  // namespace

Manifest::Manifest(const ChunkKey& chunk, std::uint32_t tokens, std::vector<Part> parts,
                   OwnerMark owner)
    : chunk_(chunk), tokens_(tokens), owner_(owner), parts_(std::move(parts)) {
  for (const Part& part : parts_) bytes_ += part.bytes;
}

Result<Manifest> Manifest::create(const ChunkKey& chunk, std::uint32_t tokens,
                                  std::vector<Part> parts, OwnerMark owner) {
  if (tokens == 0) return fail(Errc::invalid_argument, "a chunk of no tokens has no manifest");
  std::ranges::sort(parts, {}, &Part::name);
  TERRACE_TRY(check_parts(parts));
  return Manifest(chunk, tokens, std::move(parts), owner);
}

Result<Manifest> Manifest::read(const ChunkKey& chunk, std::span<const std::byte> bytes) {
  if (bytes.size() < head_bytes ||
      !std::ranges::equal(bytes.first(magic.size()), std::as_bytes(std::span(magic)))) {
    return fail(Errc::corrupt, "{} bytes are no manifest of a chunk", bytes.size());
  }
  std::span<const std::byte> rest = bytes.subspan(magic.size());
  if (take_little_endian<std::uint64_t>(rest) != checksum_of(bytes.subspan(checked_from))) {
    return fail(Errc::corrupt, "the manifest of chunk {} is damaged", to_string(chunk));
  }
  const auto version = take_little_endian<std::uint32_t>(rest);
  if (version != format_version) {
    return fail(Errc::unsupported, "a manifest has version {}, this program reads version {}",
                version, format_version);
  }
  const std::size_t count = take_little_endian<std::uint32_t>(rest);
  ChunkKey found;
  found.high = take_little_endian<std::uint64_t>(rest);
  found.low = take_little_endian<std::uint64_t>(rest);
  const auto tokens = take_little_endian<std::uint32_t>(rest);
  const auto owner = take_little_endian<OwnerMark>(rest);
  if (found != chunk || tokens == 0 || rest.size() != count * part_bytes) {
    return fail(Errc::corrupt, "a manifest of {} parts in {} bytes is not that of chunk {}", count,
                bytes.size(), to_string(chunk));
  }
  std::vector<Part> parts(count);
  for (Part& part : parts) part = take_part(rest);
  if (!std::ranges::is_sorted(parts, {}, &Part::name) || !check_parts(parts)) {
    return fail(Errc::corrupt, "the manifest of chunk {} has parts that no chunk has",
                to_string(chunk));
  }
  return Manifest(chunk, tokens, std::move(parts), owner);
}

std::vector<std::byte> Manifest::write() const {
  const std::vector<std::byte> checked = write_checked(*this);
  std::vector<std::byte> to;
  to.reserve(checked_from + checked.size());
  append_bytes(to, std::as_bytes(std::span(magic)));
  append_little_endian(to, checksum_of(checked));
  append_bytes(to, checked);
  return to;
}

bool Manifest::may_have(std::size_t bytes) noexcept {
  return bytes > head_bytes && (bytes - head_bytes) % part_bytes == 0 &&
         (bytes - head_bytes) / part_bytes <= parts_max;
}

std::uint64_t Manifest::checksum() const { return checksum_of(write_checked(*this)); }

const Part* Manifest::find(const PartName& name) const noexcept {
  const auto found = std::ranges::lower_bound(parts_, name, {}, &Part::name);
  return found != parts_.end() && found->name == name ? &*found : nullptr;
}

ChunkVerdict Manifest::judge(FunctionRef<PartState(const Part&)> state_of) const {
  ChunkVerdict verdict;
  for (const Part& part : parts_) {
    const PartState state = state_of(part);
    if (state == PartState::intact) continue;
    if (part.name.kind != PartKind::index) {
      return {.use = ChunkUse::miss, .reason = reason_of(state), .part = part.name};
    }
    if (!verdict.part) {
      verdict = {.use = ChunkUse::without_index, .reason = reason_of(state), .part = part.name};
    }
  }
  return verdict;
}

}  // namespace terrace::tiers
