// The runtime's memory for steps, as one step at a time has it. The members of a step reserve it
// one after the other as they begin:
//
//   memory.begin_member();          // before each try
//   memory.reserve_room(tokens, 0); // and tables, and queries: may fail
//   memory.promise();               // it takes part: the next members leave this memory alone
#pragma once

#include <memory>
#include <vector>

#include "memory/step_memory_pool.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class RuntimePlan;

/// Threads  one at a time
class LentStepMemory {
 public:
  LentStepMemory(const RuntimePlan& plan, Backend& backend, StepMemoryPool& pool) noexcept
      : plan_(plan), backend_(backend), pool_(pool) {}
  ~LentStepMemory() { give_back(); }
  LentStepMemory(const LentStepMemory&) = delete;
  LentStepMemory& operator=(const LentStepMemory&) = delete;

  /// Returns the memory, from the first call on that of this step.
  StepMemory& get();

  /// Says that queries and outputs are converted, so many numbers of a token each.
  void expect_conversion(std::size_t numbers) noexcept { converted_numbers_ = numbers; }

  // A member that begins. Errors: out_of_memory; what was promised before is still there.

  /// Forgets the reservations of a member that takes no part.
  void begin_member() noexcept;
  /// As begin_member(), for a member that has found no memory: memory that no member relies on is
  /// given back, and state and tiles are as small as they may be.
  void begin_member_in_least_room() noexcept;
  /// Has room for `tokens` query tokens that attend exactly, and for tiles of so many rows, as
  /// step_room() says.
  Status reserve_room(std::size_t tokens, std::size_t rows);
  /// Has `count` tables of `blocks` blocks more.
  Status reserve_tables(std::size_t count, std::size_t blocks);
  /// Has room for queries and outputs of `tokens` tokens more, where they are converted.
  Status reserve_queries(std::size_t tokens);
  /// Keeps the member's reservations until the step ends, whatever other members reserve.
  void promise() noexcept { promised_ = asked_; }

  /// Reserves queries and outputs of all members' tokens, where no member expected to convert them.
  /// Errors: out_of_memory.
  Status reserve_all_queries(std::size_t numbers);
  /// Returns how many query tokens of a member attend at once.
  [[nodiscard]] std::size_t state_tokens() noexcept;
  /// Returns how many rows a tile has: a multiple of a block's and of tile_split.
  [[nodiscard]] std::size_t tile_tokens() noexcept;

  /// Has the next table of the step, which no work under way reads. Errors: out_of_memory, where it
  /// was not reserved.
  Result<StepMemory::Table*> next_table(std::size_t blocks);
  /// Returns the step's queue for what leaves for the host. Errors: those of making it, by the
  /// first call.
  Result<std::shared_ptr<Queue>> offload();
  /// All work of the step is done.
  void give_back() noexcept;
  /// Some work does not end: `keeper` has the memory from now on.
  void leave_to(std::vector<Buffer>& keeper);

 private:
  struct Room {
    bool state = false;
    bool tiles = false;
    std::size_t tables = 0;
    std::size_t blocks = 0;   ///< of a table
    std::size_t queries = 0;  ///< numbers of them, and of outputs
  };

  /// Gives `buffer` so many bytes. If no member relies on it, its old memory is given back first:
  /// no other memory may be left.
  Status reserve(Buffer& buffer, std::size_t bytes, bool relied_on);
  Status reserve_table(std::size_t number, std::size_t blocks);

  const RuntimePlan& plan_;
  Backend& backend_;
  StepMemoryPool& pool_;
  std::unique_ptr<StepMemory> memory_;  ///< null between steps
  std::size_t converted_numbers_ = 0;   ///< of a token; 0 = none is converted
  bool least_ = false;                  ///< state and tiles are as small as they may be
  Room promised_;                       ///< to members that have begun
  Room asked_;                          ///< by these and by the one that begins
  std::size_t tables_used_ = 0;
};

}  // namespace terrace
