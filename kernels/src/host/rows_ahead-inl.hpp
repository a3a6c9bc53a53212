// Asking for rows ahead of their use, a line for each line that is read. Included once per target.
#if defined(TERRACE_KERNELS_ROWS_AHEAD_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_ROWS_AHEAD_INL
#undef TERRACE_KERNELS_ROWS_AHEAD_INL
#else
#define TERRACE_KERNELS_ROWS_AHEAD_INL
#endif

#include <cstddef>
#include <cstdint>

#include "host/prefetch.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Prefetches the first line of each row that lies neither in the page of the row before it nor in
/// the next page. Looking up a page's address takes long and delays later requests; many look-ups
/// at once overlap. Adjacent rows need no such prefetch: it would only bring them out of order.
HWY_INLINE void ask_for_pages(const std::byte* const* rows, std::size_t count) {
  constexpr std::size_t page_bytes = 4096;
  for (std::size_t i = 1; i < count; ++i) {
    const std::size_t page = reinterpret_cast<std::uintptr_t>(rows[i]) / page_bytes;
    const std::size_t before = reinterpret_cast<std::uintptr_t>(rows[i - 1]) / page_bytes;
    if (page - before > 1) prefetch(rows[i], 1);
  }
}

// These two classes prefetch the lines that follow a tile. One request directly before each line
// that is read is best: two in a row cost an Intel core a third of its rate.

/// For adjacent rows. The requests do not depend on data that were read, so they keep their places.
class RunAhead {
 public:
  HWY_INLINE RunAhead(const std::byte* begin, const std::byte* end) : line_(begin), end_(end) {}

  HWY_INLINE void ask_line() {
    if (line_ >= end_) return;
    prefetch_line(line_);
    line_ += line_bytes;
  }

 private:
  const std::byte* line_;
  const std::byte* end_;
};

/// Rows that lie anywhere.
class RowsAhead {
 public:
  /// Asks for `bytes` of each row, from `begin` on.
  HWY_INLINE RowsAhead(const std::byte* const* rows, std::size_t count, std::size_t bytes,
                       std::size_t begin = 0)
      : row_(rows), end_(rows + count), bytes_(bytes), begin_(begin) {
    ask_for_pages(rows, count);
  }

  HWY_INLINE void ask_line() {
    if (row_ == end_) return;
    prefetch_line(*row_ + begin_ + offset_);
    offset_ += line_bytes;
    const bool done = offset_ >= bytes_;
    row_ += done;
    offset_ = done ? 0 : offset_;
  }

 private:
  const std::byte* const* row_;
  const std::byte* const* end_;
  std::size_t bytes_;
  std::size_t begin_;
  std::size_t offset_ = 0;  // of the next line
};

/// No rows: all were asked for.
struct NothingAhead {
  HWY_INLINE void ask_line() {}
};

/// Rows that lie side by side in runs, as rows of blocks do.
class RunsAhead {
 public:
  HWY_INLINE RunsAhead(const std::byte* const* rows, std::size_t count, std::size_t row_bytes)
      : row_(rows), end_(rows + count), row_bytes_(row_bytes) {}

  [[nodiscard]] HWY_INLINE bool done() const { return row_ == end_ && line_ >= run_end_; }

  HWY_INLINE void ask_line() {
    if (HWY_UNLIKELY(line_ >= run_end_)) {
      if (row_ == end_) return;
      begin_run();
    }
    prefetch_line(line_);
    line_ += line_bytes;
  }

 private:
  HWY_INLINE void begin_run() {
    line_ = run_end_ = *row_;
    for (; row_ != end_ && *row_ == run_end_; ++row_) run_end_ += row_bytes_;
  }

  const std::byte* const* row_;
  const std::byte* const* end_;
  std::size_t row_bytes_;
  const std::byte* line_ = nullptr;
  const std::byte* run_end_ = nullptr;
};

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
