// The life of some sequences that go through the same steps together, and the memory that they take
// meanwhile: for tests that hold it against Runtime::memory_need.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/scenario.hpp"

namespace terrace::testing {

struct TakenMemory {
  std::size_t device = 0;
  std::size_t host = 0;
};

/// Most bytes that were in use at once since it was made. Pages of the host count one by one: the
/// runtime takes them by regions.
class MemoryMeter {
 public:
  explicit MemoryMeter(Runtime& runtime);

  /// Looks at the pages in use. To be called whenever there may be more of them.
  void look(Sequence& any);
  [[nodiscard]] TakenMemory taken() const;

 private:
  Backend& backend_;
  TakenMemory before_;
  std::size_t page_bytes_ = 0;    ///< in use, most
  std::size_t region_bytes_ = 0;  ///< of all pages
};

struct MemoryLife {
  Scenario scenario;
  std::vector<std::size_t> prompts{1'000};
  std::size_t piece = 64;
  std::size_t decoded = 240;  ///< tokens after all prompts; so many that some wait in batches
  std::size_t draft = 1;
  Dtype queries = Dtype::f32;
  std::size_t members = 1;

  /// Returns the query that says what is to come.
  [[nodiscard]] NeedQuery query() const;
};

/// Has a life on `runtime`. Fails where any step does.
TakenMemory take_memory(Runtime& runtime, const MemoryLife& life);

/// The device memory that the needs of all members predict: steps share a part.
std::size_t said_of_device(const MemoryLife& life, const MemoryNeed& need);

/// Checks that no tier takes more memory than predicted, and that no prediction is above `most`
/// times the memory taken.
void expect_said(const MemoryLife& life, double most = 1.25);

/// Larger than the defaults of scenarios, with no cache.
Scenario memory_scenario(const std::string& policy);

}  // namespace terrace::testing
