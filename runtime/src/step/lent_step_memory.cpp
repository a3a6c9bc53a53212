#include "lent_step_memory.hpp"

#include <algorithm>

#include "reserve_buffer.hpp"
#include "runtime_state.hpp"

namespace terrace {
namespace {

constexpr std::size_t state_tokens_min = 64;

}  // namespace

StepMemory& LentStepMemory::get() {
  if (memory_ == nullptr) memory_ = runtime_.lend_step_memory();
  return *memory_;
}

Status LentStepMemory::reserve(Buffer& buffer, std::size_t bytes, bool relied_on) {
  if (!relied_on) return reserve_buffer(*runtime_.backend, buffer, bytes, Purpose::staging);
  if (buffer.bytes() >= bytes) return {};
  TERRACE_ASSIGN(buffer, runtime_.backend->allocate({.bytes = bytes, .purpose = Purpose::staging}));
  return {};
}

void LentStepMemory::begin_member(bool again) noexcept {
  asked_ = promised_;
  frugal_ = again;
  if (!again || memory_ == nullptr) return;
  if (!promised_.state) memory_->state = {};
  if (!promised_.tiles) memory_->tiles = {};
}

Status LentStepMemory::reserve_state(std::size_t tokens) {
  const std::size_t least = std::min(tokens, state_tokens_min);
  for (std::size_t some = frugal_ ? least : most_state_tokens(tokens);;
       some = std::max(least, some / 2)) {
    const std::size_t bytes = tile_state_floats(runtime_.shape(), some) * sizeof(float);
    const Status reserved = reserve(get().state, bytes, promised_.state);
    asked_.state = asked_.state || reserved.has_value();
    if (reserved || reserved.error().code != Errc::out_of_memory || some == least) return reserved;
  }
}

std::size_t LentStepMemory::state_tokens() noexcept {
  const std::size_t floats = get().state.bytes() / sizeof(float);
  return most_state_tokens(floats / tile_state_floats(runtime_.shape(), 1));
}

Status LentStepMemory::reserve_tiles(std::size_t length) {
  const std::size_t block_tokens = runtime_.options.block_tokens;
  const std::size_t least = least_tile_tokens(block_tokens);
  std::size_t rows = frugal_ ? least : most_tile_tokens(length, block_tokens);
  Status reserved = reserve_tiles_of(rows);
  while (!reserved && reserved.error().code == Errc::out_of_memory && rows > least) {
    rows = std::max(least, rows / 2 / least * least);
    if (!promised_.tiles) get().tiles = {};
    reserved = reserve_tiles_of(rows);
  }
  asked_.tiles = asked_.tiles || reserved.has_value();
  return reserved;
}

Status LentStepMemory::reserve_tiles_of(std::size_t rows) {
  for (Buffer& tile : get().tiles) {
    TERRACE_TRY(reserve(tile, rows * runtime_.shape().token_bytes(), promised_.tiles));
  }
  return {};
}

std::size_t LentStepMemory::tile_tokens() noexcept {
  const std::size_t block_tokens = runtime_.options.block_tokens;
  const std::size_t bytes = std::min(get().tiles[0].bytes(), get().tiles[1].bytes());
  const std::size_t least = least_tile_tokens(block_tokens);
  const std::size_t rows = bytes / runtime_.shape().token_bytes() / least * least;
  return std::clamp(rows, least, most_tile_tokens(rows, block_tokens));
}

Status LentStepMemory::reserve_tables(std::size_t count, std::size_t blocks) {
  if (count == 0) return {};
  Room all = asked_;
  all.tables += count;
  all.blocks = std::max(all.blocks, blocks);
  std::vector<StepMemory::Table>& tables = get().tables;
  if (tables.size() < all.tables) tables.resize(all.tables);
  // Members take them in turn, whoever asked for which.
  for (std::size_t i = 0; i < all.tables; ++i) TERRACE_TRY(reserve_table(i, all.blocks));
  asked_ = all;
  return {};
}

Result<StepMemory::Table*> LentStepMemory::next_table(std::size_t blocks) {
  std::vector<StepMemory::Table>& tables = get().tables;
  if (tables_used_ == tables.size()) tables.emplace_back();
  TERRACE_TRY(reserve_table(tables_used_, blocks));
  return &tables[tables_used_++];
}

Status LentStepMemory::reserve_table(std::size_t number, std::size_t blocks) {
  StepMemory::Table& table = get().tables[number];
  if (std::min(table.device.bytes(), table.host.bytes()) >= blocks * sizeof(std::byte*)) return {};
  Backend& backend = *runtime_.backend;
  if (number >= promised_.tables) table = {};
  AllocationRequest request{.bytes = with_room(blocks) * sizeof(std::byte*),
                            .purpose = Purpose::staging};
  TERRACE_ASSIGN(Buffer device, backend.allocate(request));
  request.tier = Tier::host;
  TERRACE_ASSIGN(table.host, backend.allocate(request));
  table.device = std::move(device);
  return {};
}

Status LentStepMemory::reserve_queries(std::size_t tokens) {
  if (converted_numbers_ == 0) return {};
  const std::size_t all = promised_.queries + tokens * converted_numbers_;
  const bool relied_on = promised_.queries > 0;
  TERRACE_TRY(reserve(get().queries, all * sizeof(float), relied_on));
  TERRACE_TRY(reserve(get().outputs, all * sizeof(float), relied_on));
  asked_.queries = all;
  return {};
}

Status LentStepMemory::reserve_all_queries(std::size_t numbers) {
  for (Buffer* const buffer : {&get().queries, &get().outputs}) {
    TERRACE_TRY(reserve(*buffer, numbers * sizeof(float), /*relied_on=*/true));
  }
  return {};
}

void LentStepMemory::give_back() noexcept {
  converted_numbers_ = tables_used_ = 0;
  promised_ = asked_ = {};
  if (memory_ != nullptr) runtime_.take_back(std::move(memory_));
}

void LentStepMemory::leave_to(std::vector<Buffer>& keeper) {
  if (memory_ == nullptr) return;
  for (Buffer& tile : memory_->tiles) keeper.push_back(std::move(tile));
  keeper.push_back(std::move(memory_->state));
  keeper.push_back(std::move(memory_->queries));
  keeper.push_back(std::move(memory_->outputs));
  for (StepMemory::Table& table : memory_->tables) {
    keeper.push_back(std::move(table.host));
    keeper.push_back(std::move(table.device));
  }
  memory_.reset();
}

}  // namespace terrace
