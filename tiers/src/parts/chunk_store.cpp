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

/// Errors: corrupt: other bytes.
Status check_part(const Manifest& manifest, const Part& part, std::span<const std::byte> bytes) {
  if (bytes.size() == part.bytes &&
      part_checksum(manifest.chunk(), part.name, bytes) == part.checksum) {
    return {};
  }
  return fail(Errc::corrupt, "chunk {}: {} is not what was published", to_string(manifest.chunk()),
              to_string(part.name));
}

}  // namespace

std::uint64_t bytes_of(std::span<const PartBytes> parts) noexcept {
  std::uint64_t bytes = 0;
  for (const PartBytes& part : parts) bytes += part.bytes.size();
  return bytes;
}

Result<Manifest> ChunkStore::publish(const ChunkKey& chunk, std::uint32_t tokens,
                                     const std::shared_ptr<std::vector<PartBytes>>& parts,
                                     OwnerMark owner) {
  std::vector<Part> described;
  std::vector<PartName> names;
  for (const PartBytes& part : *parts) {
    names.push_back(part.name);
    described.push_back({.name = part.name,
                         .bytes = part.bytes.size(),
                         .checksum = part_checksum(chunk, part.name, part.bytes)});
  }
  TERRACE_ASSIGN(Manifest manifest, Manifest::create(chunk, tokens, std::move(described), owner));
  const Status written = write(manifest, parts);
  if (written) return manifest;
  static_cast<void>(calls_.erase(pages_of(chunk, names)));
  return tl::unexpected(written.error());
}

Status ChunkStore::write(const Manifest& manifest,
                         const std::shared_ptr<std::vector<PartBytes>>& parts) {
  offload::StoreBatch batch{.requests = {}, .memory = parts, .options = writing_};
  for (PartBytes& part : *parts) {
    batch.requests.push_back({.verb = PageVerb::put,
                              .key = page_key(manifest.chunk(), part.name),
                              .data = part.bytes.data(),
                              .bytes = part.bytes.size()});
  }
  TERRACE_TRY(calls_.carry_out(batch));
  for (const PageRequest& request : batch.requests) TERRACE_TRY(request.status);
  const auto last = std::make_shared<std::vector<std::byte>>(manifest.write());
  batch = {.requests = {{.verb = PageVerb::put,
                         .key = manifest_page_key(manifest.chunk()),
                         .data = last->data(),
                         .bytes = last->size()}},
           .memory = last,
           .options = writing_};
  TERRACE_TRY(calls_.carry_out(batch));
  return batch.requests.front().status;
}

Result<std::vector<Result<Manifest>>> ChunkStore::manifests(std::span<const ChunkKey> chunks) {
  TERRACE_ASSIGN(const auto pages, calls_.read_all(manifest_keys(chunks)));
  std::vector<Result<Manifest>> manifests;
  manifests.reserve(chunks.size());
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    manifests.push_back(pages[i] ? Manifest::read(chunks[i], *pages[i])
                                 : tl::unexpected(pages[i].error()));
  }
  return manifests;
}

Result<ChunkRun> ChunkStore::find_run(std::span<const ChunkKey> chunks) {
  TERRACE_ASSIGN(std::vector<Result<Manifest>> found, manifests(chunks));
  ChunkRun run;
  for (Result<Manifest>& manifest : found) {
    const Status whole = manifest ? check_parts(*manifest) : tl::unexpected(manifest.error());
    if (!whole) {
      run.end = whole.error();
      break;
    }
    run.chunks.push_back(*std::move(manifest));
  }
  return run;
}

Status ChunkStore::check_parts(const Manifest& manifest) {
  offload::StoreBatch batch;
  for (const Part& part : manifest.parts()) {
    batch.requests.push_back(
        {.verb = PageVerb::find, .key = page_key(manifest.chunk(), part.name)});
  }
  TERRACE_TRY(calls_.carry_out(batch));
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    const PageRequest& request = batch.requests[i];
    TERRACE_TRY(request.status);
    const Part& part = manifest.parts()[i];
    if (request.bytes == part.bytes) continue;
    return fail(Errc::corrupt, "chunk {}: {} has {} bytes of {}", to_string(manifest.chunk()),
                to_string(part.name), request.bytes, part.bytes);
  }
  return {};
}

Result<std::vector<std::byte>> ChunkStore::read(const Manifest& manifest, const Part& part) {
  TERRACE_ASSIGN(std::vector<std::byte> bytes, calls_.read(page_key(manifest.chunk(), part.name)));
  TERRACE_TRY(check_part(manifest, part, bytes));
  return bytes;
}

Result<std::vector<Result<std::vector<std::byte>>>> ChunkStore::read_parts(
    std::span<const PartOfChunk> parts) {
  const auto memory = std::make_shared<std::vector<std::vector<std::byte>>>();
  memory->reserve(parts.size());
  offload::StoreBatch batch{.requests = {}, .memory = memory};
  for (const PartOfChunk& one : parts) {
    std::vector<std::byte>& bytes = memory->emplace_back(one.part->bytes);
    batch.requests.push_back({.verb = PageVerb::get,
                              .key = page_key(one.manifest->chunk(), one.part->name),
                              .data = bytes.data(),
                              .bytes = bytes.size()});
  }
  TERRACE_TRY(calls_.carry_out(batch));
  std::vector<Result<std::vector<std::byte>>> read;
  read.reserve(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Status status = batch.requests[i].status;
    if (status) status = check_part(*parts[i].manifest, *parts[i].part, (*memory)[i]);
    read.push_back(status ? Result<std::vector<std::byte>>(std::move((*memory)[i]))
                          : tl::unexpected(status.error()));
  }
  return read;
}

Result<std::vector<PartBytes>> ChunkStore::read_all(const Manifest& manifest) {
  std::vector<PartOfChunk> all;
  for (const Part& part : manifest.parts()) all.push_back({&manifest, &part});
  TERRACE_ASSIGN(auto read, read_parts(all));
  std::vector<PartBytes> parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    TERRACE_ASSIGN(std::vector<std::byte> bytes, std::move(read[i]));
    parts.push_back({.name = all[i].part->name, .bytes = std::move(bytes)});
  }
  return parts;
}

std::vector<PageKey> ChunkStore::pages_of(const ChunkKey& chunk, std::span<const PartName> parts) {
  std::vector<PageKey> pages{manifest_page_key(chunk)};
  for (const PartName& part : parts) pages.push_back(page_key(chunk, part));
  return pages;
}

Result<StoreTicket> ChunkStore::start_erasing(std::span<const PageKey> pages) {
  offload::StoreBatch batch;
  for (const PageKey& page : pages) {
    batch.requests.push_back({.verb = PageVerb::erase, .key = page});
  }
  TERRACE_ASSIGN(const auto started, calls_.start(std::move(batch)));
  return started->ticket;
}

}  // namespace terrace::tiers
