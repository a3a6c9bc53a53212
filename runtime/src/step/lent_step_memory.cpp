#include "lent_step_memory.hpp"

#include "reserve_buffer.hpp"
#include "runtime_state.hpp"
#include "tile_stream.hpp"

namespace terrace {

StepMemory& LentStepMemory::get() {
  if (memory_ == nullptr) memory_ = runtime_.lend_step_memory();
  return *memory_;
}

Status LentStepMemory::reserve_tiles(std::size_t tokens) {
  const std::size_t bytes =
      tile_tokens(runtime_.options.block_tokens) * runtime_.shape().token_bytes();
  const std::size_t floats = tile_state_floats(runtime_.shape(), tokens);
  TERRACE_TRY(
      reserve_buffer(*runtime_.backend, get().state, floats * sizeof(float), Purpose::staging));
  for (Buffer& tile : get().tiles) {
    TERRACE_TRY(reserve_buffer(*runtime_.backend, tile, bytes, Purpose::staging));
  }
  return {};
}

Status LentStepMemory::reserve_queries(std::size_t numbers) {
  for (Buffer* const buffer : {&get().queries, &get().outputs}) {
    TERRACE_TRY(
        reserve_buffer(*runtime_.backend, *buffer, numbers * sizeof(float), Purpose::staging));
  }
  return {};
}

void LentStepMemory::give_back() noexcept {
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
