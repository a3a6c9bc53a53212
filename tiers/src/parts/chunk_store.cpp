#include "terrace/tiers/chunk_store.hpp"

#include <algorithm>
#include <utility>

namespace terrace::tiers {
namespace {

std::vector<PageKey> manifest_keys(std::span<const ChunkKey> chunks) {
  std::vector<PageKey> keys;
  keys.reserve(chunks.size());
  for (const ChunkKey& chunk : chunks) keys.push_back(manifest_page_key(chunk));
  return keys;
}

std::vector<PageKey> part_keys(const Manifest& manifest) {
  std::vector<PageKey> keys;
  keys.reserve(manifest.parts().size());
  for (const Part& part : manifest.parts()) keys.push_back(page_key(manifest.chunk(), part.name));
  return keys;
}

}  // namespace

Status ChunkStore::publish(const ChunkKey& chunk, std::uint32_t tokens,
                           std::vector<PartBytes> parts) {
  std::vector<Part> names;
  std::vector<offload::StoredBytes> pages;
  for (PartBytes& part : parts) {
    names.push_back({.name = part.name,
                     .bytes = part.bytes.size(),
                     .checksum = part_checksum(chunk, part.name, part.bytes)});
    pages.push_back({.key = page_key(chunk, part.name), .bytes = std::move(part.bytes)});
  }
  TERRACE_ASSIGN(const Manifest manifest, Manifest::create(chunk, tokens, std::move(names)));
  Status written = calls_.write(std::move(pages));
  if (written) {
    written = calls_.write({{.key = manifest_page_key(chunk), .bytes = manifest.write()}});
  }
  if (!written) static_cast<void>(erase(manifest));
  return written;
}

Result<std::vector<Manifest>> ChunkStore::find_run(std::span<const ChunkKey> chunks) {
  TERRACE_ASSIGN(const std::vector<bool> there, has(chunks));
  const auto end = std::ranges::find(there, false);
  chunks = chunks.first(static_cast<std::size_t>(end - there.begin()));
  TERRACE_ASSIGN(const auto pages, calls_.read_all(manifest_keys(chunks)));
  std::vector<Manifest> run;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const PageKey key = manifest_page_key(chunks[i]);
    Result<Manifest> manifest =
        pages[i] ? Manifest::read(chunks[i], *pages[i]) : tl::unexpected(pages[i].error());
    if (!manifest) {
      static_cast<void>(calls_.erase({&key, 1}));
      break;
    }
    TERRACE_ASSIGN(const bool whole, has_parts(*manifest));
    if (!whole) {
      static_cast<void>(erase(*manifest));
      break;
    }
    run.push_back(std::move(*manifest));
  }
  return run;
}

Result<bool> ChunkStore::has_parts(const Manifest& manifest) {
  TERRACE_ASSIGN(const std::vector<std::size_t> sizes, calls_.sizes_of(part_keys(manifest)));
  return std::ranges::equal(manifest.parts(), sizes, {}, &Part::bytes);
}

Result<std::vector<bool>> ChunkStore::has(std::span<const ChunkKey> chunks) {
  TERRACE_ASSIGN(const std::vector<std::size_t> sizes, calls_.sizes_of(manifest_keys(chunks)));
  std::vector<bool> there;
  for (const std::size_t bytes : sizes) there.push_back(bytes > 0);
  return there;
}

Result<std::vector<std::byte>> ChunkStore::read(const Manifest& manifest, const Part& part) {
  TERRACE_ASSIGN(std::vector<std::byte> bytes, calls_.read(page_key(manifest.chunk(), part.name)));
  if (bytes.size() == part.bytes &&
      part_checksum(manifest.chunk(), part.name, bytes) == part.checksum) {
    return bytes;
  }
  return fail(Errc::corrupt, "chunk {}: {} is not what was published", to_string(manifest.chunk()),
              to_string(part.name));
}

Status ChunkStore::erase(const Manifest& manifest) {
  // First the manifest, so that nobody finds the rest.
  const PageKey key = manifest_page_key(manifest.chunk());
  TERRACE_TRY(calls_.erase({&key, 1}));
  return calls_.erase(part_keys(manifest));
}

}  // namespace terrace::tiers
