// Requests that have not begun, and which of them is next.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "page_batches.hpp"

namespace terrace::offload {

/// A request with its batch.
struct PageWork {
  std::shared_ptr<PageBatch> batch = {};
  PageRequest* request = nullptr;
  bool drops_page = false;  ///< a get that found its page damaged, and has it erased

  [[nodiscard]] bool is_background() const noexcept {
    return batch->options.priority == Priority::background;
  }
  /// Whether other requests that only read the page may be carried out at the same time.
  [[nodiscard]] bool shares_key() const noexcept;
};

/// Requests on one key stand in a line: they begin in the order they came, and each *holds* the key
/// from its beginning until it gives it up. Gets share the key, other requests hold it alone. Lines
/// are ordered only by priority: lines in which an awaited request waits come first, even if a
/// background request is ahead of it in the line.
///
/// Threads  one at a time
class RequestOrder {
 public:
  void add(PageWork work);

  /// Returns the next request that may begin, which holds its key from now on; nothing where none
  /// may. Lines of background requests alone are passed over unless `with_background`.
  [[nodiscard]] std::optional<PageWork> next(bool with_background);

  /// A request that held a key has ended.
  void give_up(PageKey key);
  /// A request gives up its key and stands first in its line, to begin again.
  void begin_again(PageWork work);

  /// Takes out requests that have not begun.
  void take_out(const std::function<bool(const PageWork&)>& is_meant);

 private:
  struct Line {
    PageKey key = {};
    std::list<PageWork> waiting = {};
    std::size_t awaited = 0;  ///< of those
    std::size_t holding = 0;  ///< that have begun
    bool held_alone = false;
    std::list<Line>* place = nullptr;  ///< the list that it is in
  };
  using Lines = std::list<Line>;

  [[nodiscard]] static bool can_go_on(const Line& line) noexcept;
  /// Puts a line into the list where it belongs, or ends it.
  void place(Lines::iterator line);
  void let_go(Line& line);

  Lines awaited_;     ///< whose first request may begin
  Lines background_;  ///< whose first request may begin, background requests alone
  Lines held_;        ///< all other lines
  std::unordered_map<PageKey, Lines::iterator, PageKeyHash> lines_;
};

}  // namespace terrace::offload
