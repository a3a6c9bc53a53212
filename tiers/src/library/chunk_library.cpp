#include "terrace/tiers/chunk_library.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "chunk_catalogue.hpp"
#include "directory/copy_table.hpp"
#include "tenant_numbers.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::tiers {
namespace {

/// Why a chunk is dropped that could not be read; nothing = it stays.
std::optional<DropReason> drop_reason(const Error& error) noexcept {
  switch (error.code) {
    case Errc::invalid_argument:
      return DropReason::evicted;
    case Errc::corrupt:
    case Errc::unsupported:
      return DropReason::corrupt;
    default:
      return std::nullopt;
  }
}

std::uint64_t tokens_of(std::span<const Manifest> run) {
  std::uint64_t tokens = 0;
  for (const Manifest& chunk : run) tokens += chunk.tokens();
  return tokens;
}

}  // namespace

/// Chunks that this library leased.
class ChunkLibrary::Held final : public HeldChunks {
 public:
  Held(std::shared_ptr<ChunkLibrary> library, std::vector<ChunkKey> chunks) noexcept
      : HeldChunks(std::move(chunks)), library_(std::move(library)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() override { library_->return_lease(chunks_); }

  void add(const std::vector<ChunkKey>& chunks) {
    chunks_.insert(chunks_.end(), chunks.begin(), chunks.end());
  }
  [[nodiscard]] bool is_live() const noexcept override { return true; }
  [[nodiscard]] std::shared_ptr<Store> store() const noexcept override { return library_->store(); }
  [[nodiscard]] Result<std::vector<std::byte>> read(const Manifest& manifest,
                                                    const Part& part) override {
    return library_->read(manifest, part);
  }
  void drop(const ChunkKey& chunk, const Error& why) override { library_->drop(chunk, why); }

 private:
  std::shared_ptr<ChunkLibrary> library_;
};

ChunkLibrary::ChunkLibrary(const ChunkLibraryOptions& options,
                           std::unique_ptr<ChunkCatalogue> catalogue)
    : store_(options.store),
      deadline_(options.deadline),
      chunks_(options.store, options.deadline),
      remote_(options.remote),
      catalogue_(std::move(catalogue)),
      tenants_(std::make_unique<TenantNumbers>()) {}

ChunkLibrary::~ChunkLibrary() = default;

Result<TenantId> ChunkLibrary::tenant_of(const TenantSalt& salt) {
  if (salt.is_empty()) return TenantId{};
  TERRACE_ASSIGN(const Digest digest, digest_of(salt));
  const std::lock_guard lock(mutex_);
  return tenants_->number_of(mark_of(digest));
}

Result<std::optional<Error>> ChunkLibrary::learn(const FindRequest& request) {
  std::optional<Error> unclear;
  if (knows_all_) return unclear;
  std::vector<ChunkKey> unknown;
  {
    const std::lock_guard lock(mutex_);
    unknown = catalogue_->lacking(request.keys);
  }
  TERRACE_ASSIGN(const auto manifests, chunks_.manifests(unknown));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    const Result<Manifest>& manifest = manifests[i];
    // A damaged one is taken up, too, so that it is remembered as such.
    if (!manifest && drop_reason(manifest.error()) != DropReason::corrupt) {
      if (!unclear && !drop_reason(manifest.error())) unclear = manifest.error();
      continue;
    }
    catalogue_->take_up({.root = request.root,
                         .tenant = request.tenant,
                         .key = unknown[i],
                         .bytes = manifest ? manifest->bytes() : 1},
                        manifest ? &*manifest : nullptr, request.now);
  }
  static_cast<void>(start_erasing());
  return unclear;
}

LookUp ChunkLibrary::find_run(const FindRequest& request, std::uint64_t tokens) {
  return find_run(request, tokens, [](const ChunkKey&) -> const Manifest* { return nullptr; });
}

LookUp ChunkLibrary::find_run(const FindRequest& request, std::uint64_t tokens,
                              KnownManifests known) {
  const Result<std::optional<Error>> learned = learn(request);
  return look_up(request, tokens, known, learned, bring_run(request));
}

std::optional<LookUp> ChunkLibrary::find_run_here(const FindRequest& request, std::uint64_t tokens,
                                                  KnownManifests known) {
  {
    const std::lock_guard lock(mutex_);
    if (remote_ != nullptr && !catalogue_->lacking(request.keys).empty()) return std::nullopt;
  }
  const Result<std::optional<Error>> learned = learn(request);
  return look_up(request, tokens, known, learned, {});
}

void ChunkLibrary::limit_tenants(TenantLimits* limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

LookUp ChunkLibrary::look_up(const FindRequest& request, std::uint64_t tokens, KnownManifests known,
                             const Result<std::optional<Error>>& learned, const Brought& brought) {
  LookUp look_up{.tenant = request.tenant};
  {
    const std::lock_guard lock(mutex_);
    tokens_asked_ += tokens;
    Directory& directory = catalogue_->directory();
    if (request.keys.empty()) {
      directory.count(request.tenant, look_up.outcome);
      return look_up;
    }
    const FoundRun found = directory.find(request).value();
    look_up.outcome = found.outcome;
    if (found.outcome == LookUpOutcome::miss_other_namespace && !knows_namespaces_) {
      look_up.outcome = LookUpOutcome::miss_never_stored;
      directory.amend(request.tenant, found.outcome, look_up.outcome);
    }
    if (found.outcome == LookUpOutcome::hit_nvme && brought.chunks > 0) {
      look_up.outcome = LookUpOutcome::hit_remote;
      directory.amend(request.tenant, found.outcome, look_up.outcome);
    }
    FindRequest run = request;
    run.keys = request.keys.first(found.chunks[number_of(Tier::nvme)]);
    look_up.lease = lease_known(run);
  }
  if (!look_up.lease.chunks().empty()) {
    settle(look_up, known);
  } else if (!learned || *learned) {
    amend(look_up, 0, reason_of(learned ? **learned : learned.error()));
  } else if (brought.late) {
    amend(look_up, 0, reason_of(*brought.late));
  }
  return look_up;
}

void ChunkLibrary::settle(LookUp& look_up, KnownManifests known) {
  const std::span<const ChunkKey> chunks = look_up.lease.chunks();
  while (look_up.run.size() < chunks.size()) {
    const Manifest* const manifest = known(chunks[look_up.run.size()]);
    if (manifest == nullptr) break;
    look_up.run.push_back(*manifest);
  }
  Result<ChunkRun> there = ChunkRun{};
  if (const auto rest = chunks.subspan(look_up.run.size()); !rest.empty()) {
    there = chunks_.find_run(rest);
    if (!there) {
      look_up.run.clear();
      return amend(look_up, 0, reason_of(there.error()));
    }
    std::ranges::move(there->chunks, std::back_inserter(look_up.run));
  }
  {
    const std::lock_guard lock(mutex_);
    tokens_found_ += tokens_of(look_up.run);
  }
  if (!there->end) return;
  drop(chunks[look_up.run.size()], *there->end);
  amend(look_up, look_up.run.size(), reason_of(*there->end));
}

void ChunkLibrary::amend(LookUp& look_up, std::size_t usable, MissReason why) {
  const LookUpOutcome before = look_up.outcome;
  look_up.outcome = usable > 0 ? LookUpOutcome::partial : miss_of(why);
  const std::span<const Manifest> run = look_up.run;
  const std::lock_guard lock(mutex_);
  catalogue_->directory().amend(look_up.tenant, before, look_up.outcome);
  tokens_found_ -= tokens_of(run.subspan(usable));
  look_up.run.erase(look_up.run.begin() + static_cast<std::ptrdiff_t>(usable), look_up.run.end());
}

Result<std::optional<LeasedChunk>> ChunkLibrary::find_last(const FindRequest& request) {
  bring_last(request);
  TERRACE_TRY(learn(request));
  FindRequest last = request;
  ChunkLease leased;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(request.keys.rbegin(), request.keys.rend(),
                                    [&](const ChunkKey& key) { return catalogue_->has(key); });
    if (found == request.keys.rend()) return std::nullopt;
    last.keys = {&*found, 1};
    catalogue_->directory().touch(last.keys, request.now);
    leased = lease_known(last);
  }
  if (leased.chunks().empty()) return std::nullopt;
  Result<Manifest> whole = manifest(last.keys.front());
  if (!whole) return std::nullopt;
  return LeasedChunk{.manifest = *std::move(whole), .lease = std::move(leased)};
}

Result<ChunkLease> ChunkLibrary::lease(const FindRequest& request) {
  TERRACE_TRY(learn(request));
  const std::lock_guard lock(mutex_);
  return lease_known(request);
}

ChunkLease ChunkLibrary::lease_known(const FindRequest& request) {
  return ChunkLease(
      std::make_unique<Held>(shared_from_this(), catalogue_->lease(request.keys, request.now)));
}

void ChunkLibrary::touch(const FindRequest& request) {
  const std::lock_guard lock(mutex_);
  catalogue_->directory().touch(request.keys, request.now);
}

Result<Manifest> ChunkLibrary::manifest(const ChunkKey& chunk) {
  TERRACE_ASSIGN(ChunkRun run, chunks_.find_run({&chunk, 1}));
  if (!run.end) return std::move(run.chunks.front());
  drop(chunk, *run.end);
  return tl::unexpected(*run.end);
}

Result<std::vector<std::byte>> ChunkLibrary::read(const Manifest& manifest, const Part& part) {
  Result<std::vector<std::byte>> bytes = chunks_.read(manifest, part);
  if (!bytes) drop(manifest.chunk(), bytes.error());
  return bytes;
}

Result<std::vector<Result<std::vector<std::byte>>>> ChunkLibrary::read_parts(
    std::span<const PartOfChunk> parts) {
  TERRACE_ASSIGN(auto read, chunks_.read_parts(parts));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!read[i]) drop(parts[i].manifest->chunk(), read[i].error());
  }
  return read;
}

Result<Published> ChunkLibrary::publish(const PublishRequest& request, std::vector<PartBytes> parts,
                                        ChunkLease& lease) {
  auto held = std::make_shared<std::vector<PartBytes>>(std::move(parts));
  const Result<Published> published = publish_here(request, held, lease);
  const auto lower = remote();
  if (lower != nullptr && published && *published == Published::written) {
    lower->write_behind(request.key, request.tokens, std::move(held));
  }
  return published;
}

Result<Published> ChunkLibrary::publish_here(const PublishRequest& request,
                                             const std::shared_ptr<std::vector<PartBytes>>& parts,
                                             ChunkLease& lease) {
  const std::uint64_t bytes = bytes_of(*parts);
  Reserved reserved;
  {
    const std::lock_guard lock(mutex_);
    TERRACE_ASSIGN(
        reserved,
        catalogue_->reserve(
            {.root = request.root, .tenant = request.tenant, .key = request.key, .bytes = bytes}));
  }
  if (reserved.kind == Reserved::Kind::in_flight) return Published::under_way;
  std::optional<Result<Manifest>> written;
  if (reserved.kind == Reserved::Kind::reserved) {
    written = write(request, bytes, parts);
  }
  const std::lock_guard lock(mutex_);
  if (written && !*written) {
    const Error& error = written->error();
    const bool is_full = error.code == Errc::out_of_memory;
    static_cast<void>(catalogue_->directory().cancel(
        reserved.handle, is_full ? std::optional(MissReason::no_room) : std::nullopt));
    return tl::unexpected(error);
  }
  if (written) catalogue_->publish(reserved.handle, **written, request.now);
  if (!lease.covers(request.key)) {
    if (lease.held() == nullptr) {
      lease = ChunkLease(std::make_unique<Held>(shared_from_this(), std::vector<ChunkKey>{}));
    }
    auto* const held = dynamic_cast<Held*>(lease.held());
    TERRACE_ASSERT(held != nullptr);
    held->add(catalogue_->lease({&request.key, 1}, request.now));
  }
  return written ? Published::written : Published::was_there;
}

Result<Manifest> ChunkLibrary::write(const PublishRequest& request, std::uint64_t bytes,
                                     const std::shared_ptr<std::vector<PartBytes>>& parts) {
  OwnerMark owner = 0;
  {
    // Pages of a chunk that went and comes again are erased before they are written.
    const std::lock_guard lock(mutex_);
    const Result<StoreTicket> erasing = start_erasing();
    if (!erasing) return tl::unexpected(erasing.error());
    owner = tenants_->mark_of(request.tenant);
  }
  for (;;) {
    Result<Manifest> written = chunks_.publish(request.key, request.tokens, parts, owner);
    const bool is_full = !written && written.error().code == Errc::out_of_memory;
    if (!is_full || make_room(bytes) == 0) return written;
  }
}

void ChunkLibrary::drop(const ChunkKey& chunk, const Error& why) {
  const std::optional<DropReason> reason = drop_reason(why);
  if (!reason) return;
  const std::lock_guard lock(mutex_);
  catalogue_->drop(chunk, *reason);
  static_cast<void>(start_erasing());
}

void ChunkLibrary::return_lease(std::span<const ChunkKey> chunks) noexcept {
  const std::lock_guard lock(mutex_);
  catalogue_->return_lease(chunks);
  static_cast<void>(start_erasing());
}

std::uint64_t ChunkLibrary::make_room(std::uint64_t bytes, std::optional<TenantId> tenant) {
  std::uint64_t freed = 0;
  Result<StoreTicket> erasing;
  {
    const std::lock_guard lock(mutex_);
    freed = catalogue_->evict(bytes, tenant);
    if (freed == 0) return 0;
    erasing = start_erasing();
  }
  return erasing && erasing->done.wait(deadline_) ? freed : 0;
}

Result<StoreTicket> ChunkLibrary::start_erasing() {
  std::vector<PageKey>& pages = catalogue_->to_erase;
  if (pages.empty()) return StoreTicket{};
  Result<StoreTicket> erasing = chunks_.start_erasing(pages);
  if (erasing) pages.clear();
  return erasing;
}

std::shared_ptr<RemoteChunks> ChunkLibrary::remote() const {
  const std::lock_guard lock(mutex_);
  return remote_;
}

void ChunkLibrary::attach(const std::shared_ptr<RemoteChunks>& remote) {
  const std::lock_guard lock(mutex_);
  if (remote_ == nullptr) remote_ = remote;
}

ChunkCounters ChunkLibrary::counters() const {
  const std::lock_guard lock(mutex_);
  const Directory& directory = catalogue_->directory();
  return {.look_ups = directory.counters(),
          .tokens_asked = tokens_asked_,
          .tokens_found = tokens_found_,
          .evicted = catalogue_->evicted(),
          .chunks = directory.gauges(Tier::nvme)};
}

RemoteCounters ChunkLibrary::remote_counters() const {
  const std::shared_ptr<RemoteChunks> lower = remote();
  return lower == nullptr ? RemoteCounters{} : lower->counters();
}

TierGauges ChunkLibrary::gauges(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  return catalogue_->directory().gauges(tenant, Tier::nvme);
}

}  // namespace terrace::tiers
