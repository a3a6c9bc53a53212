#include "terrace/offload/parallel.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "plain_parallel.hpp"

#if !TERRACE_PLAIN_THREADS
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#endif

namespace terrace::offload {
namespace {

Result<WorkerPlace> place_of(const ParallelOptions& options) {
  if (options.threads == 0) {
    return fail(Errc::invalid_argument, "{}: the number of threads must be at least 1",
                options.name);
  }
  if (!options.numa_node) return WorkerPlace{};
  TERRACE_ASSIGN(Topology topology, Topology::discover());
  const auto node = std::ranges::find(topology.nodes(), *options.numa_node, &NumaNode::index);
  if (node == topology.nodes().end()) {
    return fail(Errc::invalid_argument, "{}: there is no NUMA node {}", options.name,
                *options.numa_node);
  }
  std::vector<CpuIndex> cpus = node->cpus;
  return WorkerPlace{std::make_shared<const Topology>(std::move(topology)), std::move(cpus)};
}

#if !TERRACE_PLAIN_THREADS

/// An arena's share of oneTBB's workers. These are the process's, by default one per CPU: without a
/// share of its own, one arena would take the workers that another one counts on.
class WorkerShare {
 public:
  explicit WorkerShare(std::size_t threads) : threads_(threads) {
    change([&] { total += threads_; });
  }
  ~WorkerShare() {
    change([&] { total -= threads_; });
  }
  WorkerShare(const WorkerShare&) = delete;
  WorkerShare& operator=(const WorkerShare&) = delete;

 private:
  template <typename Change>
  static void change(Change of_total) {
    const std::scoped_lock lock(mutex);
    of_total();
    // The new limit before the old one goes, and one more for a thread outside all arenas.
    std::unique_ptr<tbb::global_control> next;
    if (total != 0) {
      const std::size_t most = std::max<std::size_t>(total, std::thread::hardware_concurrency());
      next = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                   most + 1);
    }
    limit = std::move(next);
  }

  static inline std::mutex mutex;
  static inline std::size_t total = 0;
  static inline std::unique_ptr<tbb::global_control> limit;
  std::size_t threads_;
};

/// Binds an arena's workers while they are in it.
class WorkerBinding final : public tbb::task_scheduler_observer {
 public:
  WorkerBinding(tbb::task_arena& arena, WorkerPlace place)
      : task_scheduler_observer(arena), place_(std::move(place)) {
    for (const NumaNode& node : place_.topology->nodes()) {
      all_cpus_.insert(all_cpus_.end(), node.cpus.begin(), node.cpus.end());
    }
    observe(true);
  }
  ~WorkerBinding() override { observe(false); }

  void on_scheduler_entry(bool is_worker) override {
    if (is_worker) place_.bind_thread();
  }
  void on_scheduler_exit(bool is_worker) override {
    if (is_worker) static_cast<void>(place_.topology->bind_thread(all_cpus_));
  }

 private:
  WorkerPlace place_;
  std::vector<CpuIndex> all_cpus_;
};

class ArenaParallel final : public Parallel {
 public:
  ArenaParallel(const ParallelOptions& options, const WorkerPlace& place)
      : share_(options.threads),
        threads_(options.threads),
        arena_(static_cast<int>(options.threads)) {
    arena_.initialize();
    if (place.topology) binding_.emplace(arena_, place);
  }

  [[nodiscard]] std::size_t concurrency() const noexcept override { return threads_; }

  void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) override {
    if (count == 0) return;
    if (count == 1) return part(0);
    arena_.execute(
        [&] { tbb::parallel_for(std::size_t{0}, count, [&](std::size_t i) { part(i); }); });
  }

 private:
  WorkerShare share_;  // before the arena, which asks for workers
  std::size_t threads_;
  tbb::task_arena arena_;
  std::optional<WorkerBinding> binding_;
};

using DefaultParallel = ArenaParallel;
#else
using DefaultParallel = PlainParallel;
#endif

template <typename Threads>
Result<std::unique_ptr<Parallel>> make(const ParallelOptions& options) {
  TERRACE_ASSIGN(const WorkerPlace place, place_of(options));
  if (options.threads == 1) return std::make_unique<Serial>();
  try {
    return std::make_unique<Threads>(options, place);
  } catch (const std::exception&) {
    return fail(Errc::out_of_memory, "{}: the system gives no {} threads", options.name,
                options.threads);
  }
}

}  // namespace

Result<std::unique_ptr<Parallel>> make_parallel(const ParallelOptions& options) {
  return make<DefaultParallel>(options);
}

Result<std::unique_ptr<Parallel>> make_plain_parallel(const ParallelOptions& options) {
  return make<PlainParallel>(options);
}

}  // namespace terrace::offload
