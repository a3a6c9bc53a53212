#include "lent_step_memory.hpp"

#include <algorithm>

#include "memory/reserve_buffer.hpp"
#include "sequence/runtime_state.hpp"
#include "terrace/runtime/step_room.hpp"

namespace terrace {

StepMemory& LentStepMemory::get() {
  if (memory_ == nullptr) memory_ = pool_.lend();
  return *memory_;
}

Status LentStepMemory::reserve(Buffer& buffer, std::size_t bytes, bool relied_on) {
  if (!relied_on) return reserve_buffer(backend_, buffer, bytes, Purpose::staging);
  if (buffer.bytes() >= bytes) return {};
  TERRACE_ASSIGN(buffer, backend_.allocate({.bytes = bytes, .purpose = Purpose::staging}));
  return {};
}

void LentStepMemory::begin_member() noexcept {
  asked_ = promised_;
  least_ = false;
}

void LentStepMemory::begin_member_in_least_room() noexcept {
  begin_member();
  least_ = true;
  if (memory_ == nullptr) return;
  if (!promised_.state) memory_->state = {};
  if (!promised_.tiles) memory_->tiles = {};
  if (promised_.queries == 0) {
    memory_->queries = {};
    memory_->outputs = {};
  }
  memory_->tables.resize(std::min(memory_->tables.size(), promised_.tables));
}

Status LentStepMemory::reserve_room(std::size_t tokens, std::size_t rows) {
  const KvShape& shape = plan_.shape();
  const StepRoomQuery query{.shape = shape,
                            .block_tokens = plan_.options.block_tokens,
                            .device_memory = backend_.memory(Tier::device).limit,
                            .tokens = tokens,
                            .rows = rows};
  const StepRoom room = least_ ? least_step_room(query) : step_room(query);
  TERRACE_TRY(reserve(get().state, room.state_bytes(shape), promised_.state));
  asked_.state = true;
  if (rows == 0) return {};
  for (Buffer& tile : get().tiles) {
    TERRACE_TRY(reserve(tile, room.tile_bytes(shape), promised_.tiles));
  }
  asked_.tiles = true;
  return {};
}

std::size_t LentStepMemory::state_tokens() noexcept {
  return get().state.bytes() / sizeof(float) / tile_state_floats(plan_.shape(), 1);
}

std::size_t LentStepMemory::tile_tokens() noexcept {
  const std::size_t bytes = std::min(get().tiles[0].bytes(), get().tiles[1].bytes());
  const std::size_t block_tokens = plan_.options.block_tokens;
  // All rows lie in device memory already.
  if (bytes == 0) return most_tile_tokens(block_tokens);
  const std::size_t least = least_tile_tokens(block_tokens);
  return bytes / plan_.shape().token_bytes() / least * least;
}

Status LentStepMemory::reserve_tables(std::size_t count, std::size_t blocks) {
  if (count == 0) return {};
  Room all = asked_;
  all.tables += count;
  all.blocks = std::max(all.blocks, blocks);
  std::vector<StepMemory::Table>& tables = get().tables;
  if (tables.size() < all.tables) tables.resize(all.tables);
  // Tables are interchangeable: each member takes the next one, whichever member reserved it.
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
  Backend& backend = backend_;
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

Result<std::shared_ptr<Queue>> LentStepMemory::offload() {
  std::shared_ptr<Queue>& queue = get().offload;
  if (queue == nullptr) {
    TERRACE_ASSIGN(queue, backend_.make_queue({.name = "offload", .lane = "offload"}));
  }
  return queue;
}

void LentStepMemory::give_back() noexcept {
  converted_numbers_ = tables_used_ = 0;
  promised_ = asked_ = {};
  if (memory_ == nullptr) return;
  // The next step is to find a queue without work.
  if (memory_->offload != nullptr && !memory_->offload->clear_error()) memory_->offload.reset();
  pool_.take_back(std::move(memory_));
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
