// Look-ups of a library that go on in a lower store.
#include <algorithm>
#include <utility>

#include "chunk_catalogue.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace::tiers {
namespace {

/// Whether a lower store has said what it has of a chunk.
bool is_answer(const Error& error) noexcept {
  return error.code == Errc::invalid_argument || error.code == Errc::corrupt ||
         error.code == Errc::unsupported;
}

Error late_by(const Error& error) {
  return make_error(Errc::not_ready, "the lower store: {}", error.message());
}

/// Returns the bytes that a store may have of all pages.
std::uint64_t room_of(const Store& store) {
  const StoreUsage usage = store.usage();
  return usage.used_bytes + usage.reserved_bytes + usage.free_bytes;
}

}  // namespace

ChunkLibrary::Brought ChunkLibrary::bring_run(const FindRequest& request) {
  Brought brought;
  const std::shared_ptr<RemoteChunks> lower = remote();
  if (lower == nullptr || request.keys.empty()) return brought;
  std::vector<ChunkKey> missing;
  {
    const std::lock_guard lock(mutex_);
    missing = catalogue_->lacking(request.keys);
    if (missing.empty()) return brought;
    // Chunks that are brought up make no room among those before them.
    brought.lease = lease_known(request);
  }
  bring_all(*lower, request, missing, brought);
  return brought;
}

void ChunkLibrary::bring_all(RemoteChunks& lower, const FindRequest& request,
                             std::span<const ChunkKey> keys, Brought& brought) {
  const Deadline deadline(lower.deadline());
  const Result<std::vector<Result<Manifest>>> manifests = lower.manifests(keys);
  if (!manifests) {
    brought.late = late_by(manifests.error());
    return;
  }
  bool pays = true;  // the first chunk shows how fast the lower store is
  for (std::size_t i = 0; i < keys.size() && pays; ++i) {
    const TimePoint begin = std::chrono::steady_clock::now();
    const Result<Manifest>& manifest = (*manifests)[i];
    Status here = manifest ? Status{} : tl::unexpected(manifest.error());
    if (here && deadline.left() == Duration{}) here = fail(Errc::not_ready, "no time is left");
    if (here) here = bring(lower, request, *manifest, brought.lease);
    if (here) {
      ++brought.chunks;
      const Duration took = std::chrono::steady_clock::now() - begin;
      pays =
          request.token_seconds == 0 || seconds(took) < manifest->tokens() * request.token_seconds;
      continue;
    }
    const Error& error = here.error();
    if (error.code == Errc::corrupt) note_damage(request, keys[i]);
    // Without room here, the directory says so.
    if (!is_answer(error) && error.code != Errc::out_of_memory) brought.late = late_by(error);
    return;
  }
}

Status ChunkLibrary::bring(RemoteChunks& remote, const FindRequest& request,
                           const Manifest& manifest, ChunkLease& lease) {
  TERRACE_ASSIGN(std::vector<PartBytes> parts, remote.read(manifest, room_of(*store_)));
  const auto held = std::make_shared<std::vector<PartBytes>>(std::move(parts));
  const PublishRequest chunk{.root = request.root,
                             .tenant = request.tenant,
                             .key = manifest.chunk(),
                             .tokens = manifest.tokens(),
                             .now = request.now};
  const std::uint64_t bytes = bytes_of(*held);
  TERRACE_TRY(take_room(chunk, bytes));
  const Result<Published> published = publish_here(chunk, held, lease);
  if (TenantLimits* const limits = this->limits()) limits->give_back(chunk.tenant, bytes);
  if (!published) return tl::unexpected(published.error());
  if (*published != Published::under_way) return {};
  return fail(Errc::not_ready, "chunk {}: somebody else is writing it",
              to_string(manifest.chunk()));
}

TenantLimits* ChunkLibrary::limits() const {
  const std::lock_guard lock(mutex_);
  return limits_;
}

Status ChunkLibrary::take_room(const PublishRequest& chunk, std::uint64_t bytes) {
  TenantLimits* const limits = this->limits();
  if (limits == nullptr) return {};
  const Status taken = limits->take(chunk.tenant, bytes);
  if (taken) return {};
  const std::lock_guard lock(mutex_);
  const auto reserved = catalogue_->reserve(
      {.root = chunk.root, .tenant = chunk.tenant, .key = chunk.key, .bytes = bytes});
  if (reserved && reserved->kind == Reserved::Kind::reserved) {
    static_cast<void>(catalogue_->directory().cancel(reserved->handle, MissReason::no_room));
  }
  return taken;
}

void ChunkLibrary::note_damage(const FindRequest& request, const ChunkKey& key) {
  const std::lock_guard lock(mutex_);
  catalogue_->take_up({.root = request.root, .tenant = request.tenant, .key = key, .bytes = 1},
                      nullptr, request.now);
  static_cast<void>(start_erasing());
}

void ChunkLibrary::bring_last(const FindRequest& request) {
  const std::shared_ptr<RemoteChunks> lower = remote();
  if (lower == nullptr) return;
  std::vector<ChunkKey> missing;  // the last first
  {
    const std::lock_guard lock(mutex_);
    for (auto key = request.keys.rbegin(); key != request.keys.rend(); ++key) {
      if (catalogue_->has(*key)) break;
      missing.push_back(*key);
    }
  }
  if (missing.empty()) return;
  const auto manifests = lower->manifests(missing);
  if (!manifests) return;
  const auto last =
      std::ranges::find_if(*manifests, [](const auto& each) { return each.has_value(); });
  if (last == manifests->end()) return;
  ChunkLease lease;
  static_cast<void>(bring(*lower, request, **last, lease));
}

}  // namespace terrace::tiers
