// All that an engine embeds Terrace with, in the order in which it is read:
//
//   core/result.hpp            errors are values: Result, Status, TERRACE_TRY, TERRACE_ASSIGN
//   offload/registry.hpp       make_backend: the device and the host
//   offload/caller_queue.hpp   a queue that computes on the calling thread
//   runtime/options.hpp        RuntimeOptions: shape, policy, budget, cache, tiers
//   runtime/config.hpp         the same from YAML, environment and flags
//   runtime/runtime.hpp        Runtime: opens sequences, begins steps
//   runtime/sequence.hpp       Sequence: prompt, cut, fork, pause; its states and its memory
//   runtime/step.hpp           Step: a layer's tensors of a batch
//   runtime/memory_need.hpp    what a sequence takes, before it is opened
//
// A policy of your own is written against terrace/policies/, a kernel or a backend against
// terrace/core/ (docs/extending.md).
#pragma once

#include "terrace/core/result.hpp"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/registry.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/runtime/memory_need.hpp"
#include "terrace/runtime/options.hpp"
#include "terrace/runtime/runtime.hpp"
#include "terrace/runtime/sequence.hpp"
#include "terrace/runtime/step.hpp"
