// Handles of the C interface that close themselves, and a small runtime to try them on.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "terrace.h"
#include "terrace/core/shape.hpp"

namespace terrace::testing {

template <auto close>
struct Closes {
  template <typename T>
  void operator()(T* handle) const {
    close(handle);
  }
};
using ConfigHandle = std::unique_ptr<terrace_config, Closes<terrace_config_close>>;
using RuntimeHandle = std::unique_ptr<terrace_runtime, Closes<terrace_runtime_close>>;
using QueueHandle = std::unique_ptr<terrace_queue, Closes<terrace_queue_close>>;
using SequenceHandle = std::unique_ptr<terrace_sequence, Closes<terrace_sequence_close>>;
using StepHandle = std::unique_ptr<terrace_step, Closes<terrace_step_close>>;

using Settings = std::initializer_list<std::pair<const char*, const char*>>;

inline constexpr KvShape small_shape{
    .layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = Dtype::f16};

/// Settings of a runtime with the same steps in each run.
inline constexpr std::pair<const char*, const char*> small_settings[]{
    {"backend", "host"},           {"retrieval.policy", "pqcache"},
    {"retrieval.budget", "48"},    {"retrieval.sink_tokens", "4"},
    {"index.until_ready", "wait"}, {"kv.block_tokens", "8"}};

ConfigHandle make_config(Settings more = {});
terrace_shape shape_of(const KvShape& shape);
RuntimeHandle open_runtime(Settings more = {}, const KvShape& shape = small_shape);
QueueHandle wrap_caller(const RuntimeHandle& runtime);
SequenceHandle open_sequence(const RuntimeHandle& runtime);

/// Expects a call's failure, with a message that has `part`.
void expect_failure(terrace_status returned, terrace_status expected, const std::string& part);

}  // namespace terrace::testing

/// Expects a call that succeeds.
#define EXPECT_OK(call) EXPECT_EQ(call, TERRACE_OK) << terrace_message()
