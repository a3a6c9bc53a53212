// The data that an engine gives a sequence, and views of the rows that a sequence attends to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/retrieval.hpp"

namespace terrace {

/// The rows a step attends to, for an engine with its own attention kernel. Device memory. Kernels
/// that read them must be enqueued on the step's compute queue before the next call on the
/// sequence. Entries in canonical order: sinks, window, selected.
struct KvView {
  BlockTable resident = {};
  TokenRange sinks = {};
  TokenRange window = {};
  ListScope scope = ListScope::kv_head;
  std::byte* const* selected = nullptr;  ///< [lists, selected_stride]
  const std::uint32_t* selected_count = nullptr;
  std::size_t selected_stride = 0;
};

/// Rows that the last finished step selected in a layer. Host memory; valid until the next step.
struct StepSelection {
  TokenRange sinks = {};
  TokenRange window = {};  ///< the step's own token included
  ListScope scope = ListScope::kv_head;
  std::span<const std::uint32_t> ids = {};     ///< [lists, stride] positions
  std::span<const std::uint32_t> counts = {};  ///< [lists]; empty when nothing was selected
  std::size_t stride = 0;
};

/// The entries that retention has left of the tokens of a KV head that have left the window: by
/// rising position of the last token that each stands for, and how many tokens that is. Host
/// memory; valid until the next call that is not const.
struct RetainedEntries {
  std::span<const std::uint32_t> positions = {};
  std::span<const std::uint32_t> degrees = {};
};

}  // namespace terrace
