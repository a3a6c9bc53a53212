#include "layer_rows.hpp"

#include <algorithm>

#include "runtime_state.hpp"

namespace terrace {

LayerRows::LayerRows(RuntimeState& runtime) : runtime_(runtime), pages_(runtime.pages()) {}

Status LayerRows::reserve(std::size_t blocks) {
  TERRACE_TRY(device_.reserve(*runtime_.backend, blocks));
  if (!runtime_.policy->traits().keeps_everything) {
    TERRACE_TRY(host_.reserve(*runtime_.backend, blocks));
    const auto lock = runtime_.lock_pages();
    for (std::size_t i = pages_.size(); i < blocks; ++i) {
      TERRACE_ASSIGN(std::byte* const page, pages_.append());
      host_.set(i, page);
    }
  }
  if (places_.size() < blocks) places_.resize(blocks, BlockPlace::absent);
  return {};
}

std::size_t LayerRows::missing_pages(std::size_t blocks) const noexcept {
  return blocks - std::min(blocks, pages_.size());
}

void LayerRows::trim(std::size_t blocks) {
  places_.resize(std::min(places_.size(), blocks));
  const auto lock = runtime_.lock_pages();
  pages_.truncate(blocks);
}

void LayerRows::drop_page(std::size_t block) {
  const auto lock = runtime_.lock_pages();
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
  if (!absent(block)) runtime_.give_block(take_out(block));
}

void LayerRows::release_spare_slots() {
  for (std::byte* const slot : spare_slots) runtime_.give_block(slot);
  spare_slots.clear();
}

Status LayerRows::own(std::size_t block) {
  const auto lock = runtime_.lock_pages();
  TERRACE_ASSIGN(std::byte* const page, pages_.make_writable(block));
  host_.set(block, page);
  return {};
}

bool LayerRows::is_shared(std::size_t block) const {
  const auto lock = runtime_.lock_pages();
  return block < pages_.size() && pages_.shared(block);
}

Status LayerRows::share(const LayerRows& other) {
  {
    const auto lock = runtime_.lock_pages();
    pages_ = other.pages_.fork();
  }
  TERRACE_TRY(host_.reserve(*runtime_.backend, pages_.size()));
  for (std::size_t page = 0; page < pages_.size(); ++page) host_.set(page, pages_[page]);
  return {};
}

TokenRange LayerRows::cacheable_positions() const noexcept {
  const auto resident = [](BlockPlace place) { return place == BlockPlace::resident; };
  const auto head = std::ranges::find_if_not(places_, resident);
  const auto tail = std::find_if_not(places_.rbegin(), places_.rend(), resident).base();
  const auto position = [&](auto block) {
    return static_cast<std::size_t>(block - places_.begin()) * runtime_.options.block_tokens;
  };
  return {position(head), std::max(position(head), position(tail))};
}

bool LayerRows::all_resident(std::size_t blocks) const noexcept {
  return std::all_of(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(blocks),
                     [](BlockPlace place) { return place == BlockPlace::resident; });
}

bool LayerRows::all_on_device(std::size_t blocks) const noexcept {
  return std::none_of(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(blocks),
                      [](BlockPlace place) { return place == BlockPlace::absent; });
}

StoreRows LayerRows::store_of(const KvTensors& source, TokenRange all, TokenRange some,
                              Tier tier) const noexcept {
  const bool to_host = tier == Tier::host;
  StoreRows store{.source = source,
                  .tokens = some,
                  .target = to_host ? host_table() : device_blocks(),
                  .shape = runtime_.shape(),
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
    if (this->absent(begin / runtime_.options.block_tokens) == absent) call(TokenRange{begin, end});
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
  const std::size_t size = runtime_.options.block_tokens;
  const bool is_absent = absent(position / size);
  while (position < end && absent(position / size) == is_absent) {
    position = std::min((position / size + 1) * size, end);
  }
  return position;
}

std::size_t LayerRows::row_offset(std::size_t head, std::size_t position) const noexcept {
  const std::size_t block_tokens = runtime_.options.block_tokens;
  return (head * block_tokens + position % block_tokens) * runtime_.shape().row_bytes();
}

void LayerRows::close() {
  const auto lock = runtime_.lock_pages();
  pages_.truncate(0);
}

BlockTable LayerRows::table(std::byte* const* blocks) const noexcept {
  return {.blocks = blocks, .block_tokens = runtime_.options.block_tokens};
}

}  // namespace terrace
