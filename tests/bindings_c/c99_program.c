/* terrace.h is C99 without a warning, and each of its functions can be called from there. */
#include <string.h>

#include "expect.h"
#include "terrace.h"

enum { LAYERS = 2, HEADS = 2, DIM = 8, PROMPT = 20, NUMBERS = HEADS * DIM };

static float queries[PROMPT][NUMBERS];
static float keys[PROMPT][NUMBERS];
static float values[PROMPT][NUMBERS];
static float outputs[PROMPT][NUMBERS];

static terrace_config* make_config(void) {
  terrace_config* config = NULL;
  const char* text = NULL;
  EXPECT(terrace_config_create(&config) == TERRACE_OK);
  EXPECT(terrace_config_parse(config, "retrieval: {policy: full}", "text") == TERRACE_OK);
  EXPECT(terrace_config_load(config, "/no/such/file") == TERRACE_IO_ERROR);
  EXPECT(terrace_config_load_environment(config) == TERRACE_OK);
  EXPECT(terrace_config_set(config, "backend", "host") == TERRACE_OK);
  EXPECT(terrace_config_get(config, "retrieval.policy", &text) == TERRACE_OK);
  EXPECT(strcmp(text, "full") == 0);
  EXPECT(terrace_config_keys(config, &text) == TERRACE_OK && text[0] == '[');
  return config;
}

static terrace_runtime* open_runtime(const terrace_config* config) {
  terrace_shape shape = TERRACE_SHAPE_INIT;
  terrace_need_query query = TERRACE_NEED_QUERY_INIT;
  terrace_memory_need need = TERRACE_MEMORY_NEED_INIT;
  terrace_runtime* runtime = NULL;
  const char* text = NULL;
  shape.layers = LAYERS;
  shape.query_heads = HEADS;
  shape.kv_heads = HEADS;
  shape.head_dim = DIM;
  shape.dtype = TERRACE_DTYPE_F32;
  EXPECT(terrace_runtime_open(config, &shape, &runtime) == TERRACE_OK);
  query.tokens = 100;
  EXPECT(terrace_runtime_memory_need(runtime, &query, &need) == TERRACE_OK);
  EXPECT(terrace_runtime_device_bytes(runtime, 100) == need.device_held && need.device_held > 0);
  EXPECT(terrace_runtime_traits(runtime, &text) == TERRACE_OK && text[0] == '{');
  return runtime;
}

static void fill(void) {
  for (int token = 0; token < PROMPT; ++token) {
    for (int i = 0; i < NUMBERS; ++i) {
      queries[token][i] = (float)(token + i) / 100;
      keys[token][i] = (float)(token - i) / 100;
      values[token][i] = 1; /* so each output is 1 */
    }
  }
}

static void attend(terrace_step* step, int gathers) {
  terrace_prompt_hints hints = TERRACE_PROMPT_HINTS_INIT;
  const terrace_prompt_hints* const of_sequences[1] = {&hints};
  terrace_view view = TERRACE_VIEW_INIT;
  terrace_view* const views[1] = {&view};
  terrace_tensors tensors = TERRACE_TENSORS_INIT;
  tensors.query = queries;
  tensors.keys = keys;
  tensors.values = values;
  tensors.kv_token_stride = sizeof(keys[0]);
  tensors.kv_head_stride = DIM * sizeof(float);
  tensors.output = outputs;
  tensors.hints = of_sequences;
  for (uint32_t layer = 0; layer < LAYERS; ++layer) {
    if (gathers) {
      EXPECT(terrace_step_gather(step, layer, &tensors, views) == TERRACE_OK);
      EXPECT(view.blocks != NULL && view.window_end == PROMPT + 1);
    } else {
      EXPECT(terrace_step_attend(step, layer, &tensors) == TERRACE_OK);
    }
  }
}

static void run_step(terrace_runtime* runtime, terrace_queue* compute, terrace_sequence* sequence,
                     size_t tokens, int gathers) {
  terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
  terrace_step* step = NULL;
  options.sequences = &sequence;
  options.count = 1;
  options.tokens = &tokens;
  options.compute = compute;
  EXPECT(terrace_step_begin(runtime, &options, &step) == TERRACE_OK);
  EXPECT(terrace_step_sequences(step) == 1);
  attend(step, gathers);
  EXPECT(terrace_step_end(step, NULL) == TERRACE_OK);
  EXPECT(terrace_step_status(step, 0) == TERRACE_OK);
  terrace_step_close(step);
}

static void use_sequence(terrace_sequence* sequence) {
  const uint32_t position = 0;
  float row[2 * DIM] = {0};
  terrace_needs needs = TERRACE_NEEDS_INIT;
  terrace_sequence* twin = NULL;
  terrace_prefix_query query = TERRACE_PREFIX_QUERY_INIT;
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  const char* text = NULL;
  EXPECT(terrace_sequence_length(sequence) == PROMPT + 1);
  EXPECT(terrace_sequence_phase(sequence) == TERRACE_PHASE_IDLE);
  EXPECT(terrace_sequence_needs(sequence, &needs) == TERRACE_OK);
  EXPECT(terrace_sequence_index_ready(sequence) == 1);
  EXPECT(terrace_sequence_await_indexes(sequence) == TERRACE_OK);
  EXPECT(terrace_sequence_read_rows(sequence, 0, 1, &position, 1, row, sizeof(row)) == TERRACE_OK);
  EXPECT(row[0] == keys[0][DIM] && row[DIM] == 1);
  EXPECT(terrace_sequence_counters(sequence, &text) == TERRACE_OK && text[0] == '{');
  query.tokens = &position;
  query.token_count = 1;
  EXPECT(terrace_sequence_publish(sequence, &query, &report) == TERRACE_UNSUPPORTED);
  EXPECT(terrace_sequence_fork(sequence, &twin) == TERRACE_OK);
  EXPECT(terrace_sequence_truncate(twin, 5) == TERRACE_OK);
  EXPECT(terrace_sequence_pause(twin) == TERRACE_UNSUPPORTED);
  EXPECT(terrace_sequence_resume(twin) == TERRACE_INVALID_ARGUMENT);
  terrace_sequence_close(twin);
}

int main(void) {
  terrace_config* const config = make_config();
  terrace_runtime* const runtime = open_runtime(config);
  terrace_queue_options queue_options = TERRACE_QUEUE_OPTIONS_INIT;
  terrace_sequence_options sequence_options = TERRACE_SEQUENCE_OPTIONS_INIT;
  terrace_queue* of_backend = NULL;
  terrace_queue* of_caller = NULL;
  terrace_queue* of_stream = NULL;
  terrace_sequence* sequence = NULL;
  terrace_prefix_query query = TERRACE_PREFIX_QUERY_INIT;
  size_t found = 1;
  EXPECT(strlen(terrace_version()) > 0 && terrace_abi_version() == TERRACE_ABI_VERSION);
  EXPECT(terrace_queue_open(runtime, &queue_options, &of_backend) == TERRACE_OK);
  EXPECT(terrace_queue_wrap_caller(runtime, &queue_options, &of_caller) == TERRACE_OK);
  EXPECT(terrace_queue_wrap_stream(runtime, NULL, &queue_options, &of_stream) != TERRACE_OK);
  EXPECT(terrace_sequence_open_prefix(runtime, &sequence_options, &query, &sequence, &found) ==
         TERRACE_OK);
  EXPECT(found == 0);
  terrace_sequence_close(sequence);
  EXPECT(terrace_sequence_open(runtime, &sequence_options, &sequence) == TERRACE_OK);
  EXPECT(terrace_runtime_sequences(runtime) == 1);
  fill();
  EXPECT(terrace_sequence_begin_prompt(sequence, PROMPT) == TERRACE_OK);
  run_step(runtime, of_backend, sequence, PROMPT, 0);
  EXPECT(terrace_queue_drain(of_backend, 1000000000) == TERRACE_OK);
  EXPECT(outputs[PROMPT - 1][0] > 0.999f && outputs[PROMPT - 1][0] < 1.001f);
  run_step(runtime, of_caller, sequence, 1, 1);
  use_sequence(sequence);
  terrace_sequence_close(sequence);
  terrace_queue_close(of_caller);
  terrace_queue_close(of_backend);
  terrace_runtime_close(runtime);
  terrace_config_close(config);
  return 0;
}
