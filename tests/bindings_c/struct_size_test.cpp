// Sizes of structs: sizes of older and newer programs are accepted, impossible ones refused.
#include <gmock/gmock.h>

#include <array>
#include <cstring>

#include "bindings_c/handles.hpp"

namespace terrace::testing {
namespace {

terrace_status open_with(const terrace_shape& shape) {
  terrace_runtime* runtime = nullptr;
  const terrace_status status = terrace_runtime_open(make_config().get(), &shape, &runtime);
  terrace_runtime_close(runtime);
  return status;
}

TEST(CStructSize, OfNoVersionIsRefused) {
  terrace_shape shape = shape_of(small_shape);
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, sizeof(std::size_t),
                                 offsetof(terrace_shape, dtype) - sizeof(std::size_t),
                                 sizeof(shape) - 1, SIZE_MAX, SIZE_MAX - 7}) {
    shape.size = size;
    expect_failure(open_with(shape), TERRACE_INVALID_ARGUMENT, "shape.size is");
  }
}

TEST(CStructSize, OfAnOlderProgramLeavesLaterFieldsAtTheirDefaults) {
  terrace_shape shape = shape_of(small_shape);
  shape.size = offsetof(terrace_shape, dtype);
  shape.dtype = 99;  // memory after the older struct
  shape.softmax_scale = -99;
  EXPECT_OK(open_with(shape));
}

/// The struct as a later version may have it.
struct NewerShape {
  terrace_shape now = shape_of(small_shape);
  std::size_t later = 0;
};

TEST(CStructSize, OfANewerProgramIsTakenWhereItAsksForNothingNew) {
  NewerShape newer;
  newer.now.size = sizeof(newer);
  EXPECT_OK(open_with(newer.now));
  newer.later = 1;
  expect_failure(open_with(newer.now), TERRACE_UNSUPPORTED, "does not know");
}

TEST(CStructSize, SaysHowMuchOfAnAnswerThereIsRoomFor) {
  const RuntimeHandle runtime = open_runtime({{"retrieval.policy", "qpq"}});
  const SequenceHandle sequence = open_sequence(runtime);
  struct {
    terrace_needs now = TERRACE_NEEDS_INIT;
    std::size_t later = 7;
  } newer;
  newer.now.size = sizeof(newer);
  EXPECT_OK(terrace_sequence_needs(sequence.get(), &newer.now));
  EXPECT_EQ(newer.now.size, sizeof(newer));
  EXPECT_EQ(newer.later, 0U);
  terrace_needs older = TERRACE_NEEDS_INIT;
  older.size = offsetof(terrace_needs, pre_rope_keys);
  older.pre_rope_keys = 7;
  EXPECT_OK(terrace_sequence_needs(sequence.get(), &older));
  EXPECT_EQ(older.query_window_tokens, newer.now.query_window_tokens);
  EXPECT_EQ(older.pre_rope_keys, 7);
  older.size = 1;
  expect_failure(terrace_sequence_needs(sequence.get(), &older), TERRACE_INVALID_ARGUMENT,
                 "needs.size is 1");
}

TEST(CStructSize, OfAnOlderQueryLeavesLaterFieldsAtTheirDefaults) {
  const RuntimeHandle runtime = open_runtime();
  terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  query.tokens = 1000;
  terrace_memory_need whole = TERRACE_MEMORY_NEED_INIT;
  EXPECT_OK(terrace_runtime_memory_need(runtime.get(), &query, &whole));
  query.size = offsetof(terrace_need_query, step_tokens);
  query.step_tokens = query.draft_tokens = 900;  // memory after the older struct
  query.dtype = 99;
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  need.size = offsetof(terrace_memory_need, host_rest);
  need.host_rest = 7;
  EXPECT_OK(terrace_runtime_memory_need(runtime.get(), &query, &need));
  EXPECT_EQ(need.device_step, whole.device_step);
  EXPECT_EQ(need.device_shared, whole.device_shared);
  EXPECT_EQ(need.host_index, whole.host_index);
  EXPECT_EQ(need.host_rest, 7U);
}

TEST(CStructSize, IsCheckedInEachStruct) {
  const RuntimeHandle runtime = open_runtime();
  terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  query.size = sizeof(std::size_t);
  expect_failure(terrace_runtime_memory_need(runtime.get(), &query, &need),
                 TERRACE_INVALID_ARGUMENT, "query.size is");
  query = TERRACE_NEED_QUERY_INIT;
  need.size = 1;
  expect_failure(terrace_runtime_memory_need(runtime.get(), &query, &need),
                 TERRACE_INVALID_ARGUMENT, "need.size is 1");
  terrace_queue* queue = nullptr;
  terrace_queue_options queue_options = TERRACE_QUEUE_OPTIONS_INIT;
  queue_options.size = 1;
  expect_failure(terrace_queue_open(runtime.get(), &queue_options, &queue),
                 TERRACE_INVALID_ARGUMENT, "options.size is 1");
  terrace_sequence* sequence = nullptr;
  terrace_sequence_options sequence_options = TERRACE_SEQUENCE_OPTIONS_INIT;
  sequence_options.size = 1;
  expect_failure(terrace_sequence_open(runtime.get(), &sequence_options, &sequence),
                 TERRACE_INVALID_ARGUMENT, "options.size is 1");
  terrace_step* step = nullptr;
  terrace_step_options step_options = TERRACE_STEP_OPTIONS_INIT;
  step_options.size = 1;
  expect_failure(terrace_step_begin(runtime.get(), &step_options, &step), TERRACE_INVALID_ARGUMENT,
                 "members.size is 1");
}

}  // namespace
}  // namespace terrace::testing
