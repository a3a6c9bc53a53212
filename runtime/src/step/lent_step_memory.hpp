// The runtime's memory for steps, as one step at a time has it.
#pragma once

#include <memory>
#include <vector>

#include "step_memory.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class RuntimeState;

/// Threads  one at a time
class LentStepMemory {
 public:
  explicit LentStepMemory(RuntimeState& runtime) noexcept : runtime_(runtime) {}
  ~LentStepMemory() { give_back(); }
  LentStepMemory(const LentStepMemory&) = delete;
  LentStepMemory& operator=(const LentStepMemory&) = delete;

  /// Returns the memory, from the first call on that of this step.
  StepMemory& get();
  /// Has room for tiles of rows, and for the state of so many tokens that attend to them. Errors:
  /// out_of_memory.
  Status reserve_tiles(std::size_t tokens);
  /// Has `count` tables of `blocks` blocks more. Errors: out_of_memory.
  Status reserve_tables(std::size_t count, std::size_t blocks);
  /// Has the next table of the step, which no work under way reads. Errors: out_of_memory, where it
  /// was not reserved.
  Result<StepMemory::Table*> next_table(std::size_t blocks);
  /// Says how many numbers of queries, and of outputs, the step converts.
  void expect_queries(std::size_t numbers) noexcept { queries_expected_ = numbers; }
  /// Has room for them. Errors: out_of_memory.
  Status reserve_queries();

  /// All work of the step is done.
  void give_back() noexcept;
  /// Some work does not end: `keeper` has the memory from now on.
  void leave_to(std::vector<Buffer>& keeper);

 private:
  Status reserve_table(StepMemory::Table& table, std::size_t blocks);

  RuntimeState& runtime_;
  std::unique_ptr<StepMemory> memory_;  ///< null between steps
  std::size_t queries_expected_ = 0;
  std::size_t tables_reserved_ = 0;
  std::size_t blocks_reserved_ = 0;  ///< of a table
  std::size_t tables_used_ = 0;
};

}  // namespace terrace
