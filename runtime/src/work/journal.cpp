#include "journal.hpp"

#include <utility>

namespace terrace {

void Journal::note_step_end(std::uint64_t offload_bytes, std::uint64_t index_bytes) {
  if (!listens()) return;
  observer_->on_step_end(
      {.sequence = sequence_,
       .offload_bytes = offload_bytes,
       .index_bytes = index_bytes - std::exchange(reported_index_bytes_, index_bytes),
       .ids_bytes = std::exchange(ids_bytes_, 0U)});
}

}  // namespace terrace
