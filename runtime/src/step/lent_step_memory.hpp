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
  /// Has room for so many numbers of queries, and of outputs. Errors: out_of_memory.
  Status reserve_queries(std::size_t numbers);

  /// All work of the step is done.
  void give_back() noexcept;
  /// Some work does not end: `keeper` has the memory from now on.
  void leave_to(std::vector<Buffer>& keeper);

 private:
  RuntimeState& runtime_;
  std::unique_ptr<StepMemory> memory_;  ///< null between steps
};

}  // namespace terrace
