#include "bindings_c/handles.hpp"

#include <gmock/gmock.h>

namespace terrace::testing {

ConfigHandle make_config(Settings more) {
  terrace_config* config = nullptr;
  EXPECT_OK(terrace_config_create(&config));
  for (const auto& [key, value] : small_settings) EXPECT_OK(terrace_config_set(config, key, value));
  for (const auto& [key, value] : more) EXPECT_OK(terrace_config_set(config, key, value));
  return ConfigHandle(config);
}

terrace_shape shape_of(const KvShape& shape) {
  terrace_shape c_shape = TERRACE_SHAPE_INIT;
  c_shape.layers = shape.layers;
  c_shape.query_heads = shape.query_heads;
  c_shape.kv_heads = shape.kv_heads;
  c_shape.head_dim = shape.head_dim;
  c_shape.dtype = static_cast<std::int32_t>(shape.dtype);
  c_shape.softmax_scale = shape.softmax_scale;
  return c_shape;
}

RuntimeHandle open_runtime(Settings more, const KvShape& shape) {
  const terrace_shape c_shape = shape_of(shape);
  terrace_runtime* runtime = nullptr;
  EXPECT_OK(terrace_runtime_open(make_config(more).get(), &c_shape, &runtime));
  return RuntimeHandle(runtime);
}

QueueHandle wrap_caller(const RuntimeHandle& runtime) {
  terrace_queue* queue = nullptr;
  EXPECT_OK(terrace_queue_wrap_caller(runtime.get(), nullptr, &queue));
  return QueueHandle(queue);
}

SequenceHandle open_sequence(const RuntimeHandle& runtime) {
  terrace_sequence* sequence = nullptr;
  EXPECT_OK(terrace_sequence_open(runtime.get(), nullptr, &sequence));
  return SequenceHandle(sequence);
}

void expect_failure(terrace_status returned, terrace_status expected, const std::string& part) {
  EXPECT_EQ(returned, expected);
  EXPECT_THAT(std::string(terrace_message()), ::testing::HasSubstr(part));
}

}  // namespace terrace::testing
