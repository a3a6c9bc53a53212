#include "layer_rows.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace terrace {

LayerRows::LayerRows(const RuntimePlan& plan, Backend& backend, BlockPool& blocks, HostTier& host)
    : plan_(plan),
      backend_(backend),
      device_blocks_(blocks),
      host_tier_(host),
      mover_(host.mover()),
      pages_(host.pages()) {}

Status LayerRows::reserve(std::size_t blocks) {
  TERRACE_TRY(device_.reserve(backend_, blocks));
  if (!plan_.keeps_everything()) {
    TERRACE_TRY(host_.reserve(backend_, blocks));
    for (std::size_t i = pages_.size(); i < blocks; ++i) {
      TERRACE_ASSIGN(std::byte* const page, pages_.append());
      host_.set(i, page);
    }
    if (has_mover() && stored_.size() < blocks) {
      stored_.resize(blocks, offload::StoredPage::none);
      keepers_.resize(blocks);
      wanted_.resize(blocks, host_tier_.count_wanted());
    }
  }
  if (places_.size() < blocks) places_.resize(blocks, BlockPlace::absent);
  return {};
}

std::size_t LayerRows::missing_pages(std::size_t blocks) const noexcept {
  return blocks - std::min(blocks, pages_.size());
}

void LayerRows::trim(std::size_t blocks) {
  if (first_lost_ >= blocks) first_lost_.reset();
  places_.resize(std::min(places_.size(), blocks));
  forget_pages_from(blocks);
}

void LayerRows::forget_pages_from(std::size_t block) {
  for (std::size_t i = block; i < stored_.size(); ++i) {
    leave_host(i);
    forget_stored(i);
  }
  const std::size_t kept = std::min(block, stored_.size());
  stored_.resize(kept);
  keepers_.resize(kept);
  wanted_.resize(kept);
  pages_.truncate(block);
}

void LayerRows::forget_stored(std::size_t block) {
  next_copied_ = std::min(next_copied_, block);
  if (block >= stored_.size() || stored_[block] == offload::StoredPage::none) return;
  if (is_away(block)) {
    --away_;
  } else {
    mover_->keep(stored_[block], pages_.pages()[block]);
  }
  mover_->release(std::exchange(stored_[block], offload::StoredPage::none));
}

void LayerRows::leave_host(std::size_t block) {
  if (stored_[block] == offload::StoredPage::none || is_away(block)) return;
  mover_->give_back(stored_[block], pages_.take_out(block));
  host_.set(block, nullptr);
  ++away_;
}

void LayerRows::drop_page(std::size_t block) {
  if (block < stored_.size()) leave_host(block);
  forget_stored(block);
  pages_.release(block);
  host_.set(block, nullptr);
}

void LayerRows::put(std::size_t block, std::byte* slot, BlockPlace place) {
  device_.set(block, slot);
  places_[block] = place;
}

std::byte* LayerRows::take_out(std::size_t block) {
  std::byte* const slot = device_[block];
  put(block, nullptr, BlockPlace::absent);
  return slot;
}

void LayerRows::release(std::size_t block) {
  if (!absent(block)) device_blocks_.give(take_out(block));
}

void LayerRows::release_spare_slots() {
  for (std::byte* const slot : spare_slots) device_blocks_.give(slot);
  spare_slots.clear();
}

Status LayerRows::own(std::size_t block) {
  TERRACE_ASSIGN(std::byte* const page, pages_.make_writable(block));
  host_.set(block, page);
  return {};
}

bool LayerRows::is_shared(std::size_t block) const {
  return block < pages_.size() && pages_.shared(block);
}

Status LayerRows::share(const LayerRows& other) {
  // First what can fail: from then on this counts among the holders of the pages.
  TERRACE_TRY(host_.reserve(backend_, other.pages_.size()));
  pages_ = other.pages_.fork();
  stored_ = other.stored_;
  away_ = other.away_;
  for (std::size_t block = 0; block < stored_.size(); ++block) {
    if (stored_[block] == offload::StoredPage::none) continue;
    mover_->share(stored_[block], pages_.pages()[block]);
  }
  keepers_.resize(stored_.size());
  wanted_ = other.wanted_;
  lease_ = other.lease_;
  blocks_of_chunk_ = other.blocks_of_chunk_;
  for (std::size_t page = 0; page < pages_.size(); ++page) host_.set(page, pages_[page]);
  return {};
}

Status LayerRows::adopt(const AdoptedBlocks& adopted) {
  const std::size_t blocks = adopted.places.size();
  TERRACE_TRY(device_.reserve(backend_, blocks));
  TERRACE_TRY(host_.reserve(backend_, blocks));
  pages_.append_holes(blocks);
  lease_ = adopted.lease;
  blocks_of_chunk_ = adopted.blocks_of_chunk;
  for (const offload::StoredPlace& place : adopted.places) stored_.push_back(mover_->adopt(place));
  keepers_.resize(blocks);
  wanted_.resize(blocks, host_tier_.count_wanted());
  places_.resize(blocks, BlockPlace::absent);
  away_ = blocks;
  return {};
}

void LayerRows::list_away(std::span<const std::uint32_t> blocks, std::vector<Arrival>& arrivals) {
  const std::uint64_t now = host_tier_.count_wanted();
  for (const std::uint32_t block : blocks) wanted_[block] = now;
  std::vector<std::uint32_t> away;
  std::ranges::copy_if(blocks, std::back_inserter(away),
                       [&](std::uint32_t block) { return is_away(block); });
  std::ranges::sort(away);
  const auto [first, last] = std::ranges::unique(away);
  away.erase(first, last);
  for (const std::uint32_t block : away) arrivals.push_back({.rows = this, .block = block});
}

Status LayerRows::bring(std::span<Arrival> arrivals) {
  std::vector<Arrival*> left;
  for (Arrival& one : arrivals) {
    if (!one.has_come()) left.push_back(&one);
  }
  if (left.empty()) return {};
  std::vector<Page> pages;
  pages.reserve(left.size());
  for (const Arrival* const one : left) {
    pages.push_back({.stored = one->rows->stored_[one->block]});
  }
  const Status promoted = left.front()->rows->mover_->promote(pages);
  Status all_came;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    Arrival& one = *left[i];
    if (pages[i].status && pages[i].host.is_hole()) continue;
    one.status = pages[i].status;
    one.was_read = pages[i].was_read;
    if (one.status) {
      one.rows->host_.set(one.block, one.rows->pages_.fill(one.block, pages[i].host));
      --one.rows->away_;
    } else {
      one.rows->note_lost(one.block, one.status.error());
      if (all_came) all_came = one.status;
    }
  }
  return all_came ? promoted : all_came;
}

void LayerRows::note_lost(std::uint32_t block, const Error& why) {
  // A store that was busy, or late, still has it.
  const bool may_come =
      why.code == Errc::not_ready || why.code == Errc::cancelled || why.code == Errc::out_of_memory;
  const bool adopted = mover_->is_adopted(stored_[block]);
  if (adopted) lease_->drop(block / blocks_of_chunk_, why);
  if (may_come) return;
  // The blocks before it share checksums with it: a sequence that was cut at the block might need
  // them for its window. Where the lease has ended, first_lost() knows them all.
  if (adopted && lease_->is_live()) block -= block % static_cast<std::uint32_t>(blocks_of_chunk_);
  first_lost_ = std::min(first_lost_.value_or(block), block);
}

std::optional<std::uint32_t> LayerRows::first_lost() const {
  if (lease_ == nullptr || lease_->is_live()) return first_lost_;
  for (std::uint32_t block = 0; block < stored_.size(); ++block) {
    if (is_away(block) && mover_->is_adopted(stored_[block])) {
      return std::min(first_lost_.value_or(block), block);
    }
  }
  return first_lost_;
}

void LayerRows::list_idle(std::size_t blocks, std::vector<IdlePage>& idle) {
  const bool lease_ended = lease_ != nullptr && !lease_->is_live();
  for (std::uint32_t block = 0; block < std::min(blocks, stored_.size()); ++block) {
    if (host_[block] == nullptr || keepers_[block] > 0) continue;
    // The page on the host is the only copy then.
    const bool is_stored = stored_[block] != offload::StoredPage::none;
    if (lease_ended && is_stored && mover_->is_adopted(stored_[block])) forget_stored(block);
    if (stored_[block] == offload::StoredPage::none && !mover_->has_store()) continue;
    idle.push_back({.rows = this,
                    .block = block,
                    .wanted = wanted_[block],
                    .region = pages_.pages()[block].region});
  }
}

Result<LayerRows::Departure> LayerRows::send_away(std::span<const IdlePage> pages) {
  if (pages.empty()) return Departure{};
  std::vector<Page> moved;
  moved.reserve(pages.size());
  for (const IdlePage& page : pages) {
    const LayerRows& rows = *page.rows;
    moved.push_back({.host = rows.pages_.pages()[page.block], .stored = rows.stored_[page.block]});
  }
  pages.front().rows->mover_->demote(moved);
  Departure departure;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    LayerRows& rows = *pages[i].rows;
    const std::uint32_t block = pages[i].block;
    const auto before = std::exchange(rows.stored_[block], moved[i].stored);
    if (!moved[i].status) continue;
    if (before != moved[i].stored) ++departure.written;
    rows.leave_host(block);
    ++departure.left;
  }
  if (departure.left == 0) return tl::unexpected(moved.front().status.error());
  return departure;
}

void LayerRows::list_uncopied(std::size_t blocks, std::size_t count, std::vector<IdlePage>& pages) {
  const std::size_t end = std::min(blocks, stored_.size());
  for (std::size_t block = next_copied_; block < end && count > 0; ++block) {
    if (host_[block] == nullptr || stored_[block] != offload::StoredPage::none) continue;
    pages.push_back({.rows = this, .block = static_cast<std::uint32_t>(block)});
    --count;
  }
}

std::size_t LayerRows::copy(std::span<const IdlePage> pages) {
  if (pages.empty()) return 0;
  std::vector<Page> copied;
  copied.reserve(pages.size());
  for (const IdlePage& page : pages) {
    copied.push_back({.host = page.rows->pages_.pages()[page.block]});
  }
  pages.front().rows->mover_->copy(copied);
  std::size_t count = 0;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (!copied[i].status) continue;
    LayerRows& rows = *pages[i].rows;
    rows.next_copied_ = std::max<std::size_t>(rows.next_copied_, pages[i].block + 1);
    rows.stored_[pages[i].block] = copied[i].stored;
    ++count;
  }
  return count;
}

TokenRange LayerRows::cacheable_positions() const noexcept {
  const auto resident = [](BlockPlace place) { return place == BlockPlace::resident; };
  const auto head = std::ranges::find_if_not(places_, resident);
  const auto tail = std::find_if_not(places_.rbegin(), places_.rend(), resident).base();
  const auto position = [&](auto block) {
    return static_cast<std::size_t>(block - places_.begin()) * plan_.block_tokens();
  };
  return {position(head), std::max(position(head), position(tail))};
}

bool LayerRows::all_resident(std::size_t blocks) const noexcept {
  return std::all_of(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(blocks),
                     [](BlockPlace place) { return place == BlockPlace::resident; });
}

bool LayerRows::all_on_device(std::size_t blocks) const noexcept {
  const std::size_t there = std::min(blocks, places_.size());
  return std::none_of(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(there),
                      [](BlockPlace place) { return place == BlockPlace::absent; });
}

StoreRows LayerRows::store_of(const KvTensors& source, TokenRange all, TokenRange some,
                              Tier tier) const noexcept {
  const bool to_host = tier == Tier::host;
  StoreRows store{.source = source,
                  .tokens = some,
                  .target = to_host ? host_table() : device_blocks(),
                  .shape = plan_.shape(),
                  .crosses_link = to_host};
  const std::size_t skipped = (some.begin - all.begin) * source.token_stride;
  store.source.keys += skipped;
  store.source.values += skipped;
  return store;
}

template <typename Call>
void LayerRows::for_each_run(TokenRange tokens, bool absent, Call call) const {
  for (std::size_t begin = tokens.begin; begin < tokens.end;) {
    const std::size_t end = run_end(begin, tokens.end);
    if (this->absent(begin / plan_.block_tokens()) == absent) call(TokenRange{begin, end});
    begin = end;
  }
}

void LayerRows::list_device_stores(const KvTensors& source, TokenRange tokens,
                                   std::vector<StoreRows>& stores) const {
  for_each_run(tokens, /*absent=*/false, [&](TokenRange run) {
    stores.push_back(store_of(source, tokens, run, Tier::device));
  });
}

void LayerRows::list_host_stores(const KvTensors& source, TokenRange tokens, bool all,
                                 std::vector<StoreRows>& stores) const {
  if (all) return stores.push_back(store_of(source, tokens, tokens, Tier::host));
  for_each_run(tokens, /*absent=*/true, [&](TokenRange run) {
    stores.push_back(store_of(source, tokens, run, Tier::host));
  });
}

std::size_t LayerRows::run_end(std::size_t position, std::size_t end) const noexcept {
  const std::size_t size = plan_.block_tokens();
  const bool is_absent = absent(position / size);
  while (position < end && absent(position / size) == is_absent) {
    position = std::min((position / size + 1) * size, end);
  }
  return position;
}

std::size_t LayerRows::row_offset(std::size_t head, std::size_t position) const noexcept {
  const std::size_t block_tokens = plan_.block_tokens();
  return (head * block_tokens + position % block_tokens) * plan_.shape().row_bytes();
}

void LayerRows::list_host_copies(TokenRange tokens, std::vector<CopyExtent>& extents) const {
  const std::size_t block_tokens = plan_.block_tokens();
  std::size_t end = 0;
  for (std::size_t begin = tokens.begin; begin < tokens.end; begin = end) {
    const std::size_t block = begin / block_tokens;
    end = std::min(tokens.end, (block + 1) * block_tokens);
    if (absent(block)) continue;
    const std::size_t bytes = (end - begin) * plan_.shape().row_bytes();
    for (std::size_t head = 0; head < plan_.shape().kv_heads; ++head) {
      const std::size_t at = row_offset(head, begin);
      extents.push_back({on_host(block) + at, on_device(block) + at, bytes});
    }
  }
}

void LayerRows::close() {
  forget_pages_from(0);
  lease_.reset();
}

BlockTable LayerRows::table(std::byte* const* blocks) const noexcept {
  return {.blocks = blocks, .block_tokens = plan_.block_tokens()};
}

}  // namespace terrace
