// The services that the parts of a sequence are made with. A part keeps those that it uses.
#pragma once

#include "cache_sharers.hpp"
#include "cluster_threads.hpp"
#include "iteration_limits.hpp"
#include "memory/sequence_memory.hpp"
#include "plan/runtime_plan.hpp"
#include "plan/sequence_progress.hpp"
#include "work/sequence_work.hpp"

namespace terrace {

struct SequenceServices {
  const RuntimePlan& plan;
  SequenceProgress& progress;
  SequenceWork& work;
  const SequenceMemory& memory;
  ClusterThreads& threads;
  IterationLimits& iteration_limits;
  CacheSharers& sharers;
};

}  // namespace terrace
