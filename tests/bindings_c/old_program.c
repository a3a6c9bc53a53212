/* A program that was compiled with a frozen, older header runs with the library of today. Each of
 * its structs is followed by bytes that the library must not read or write. */
#include <string.h>

#include "expect.h"
#include "old_terrace.h"

enum { HEADS = 2, DIM = 8, NUMBERS = HEADS * DIM };

/* A struct with the bytes after it. */
#define GUARDED(type)          \
  struct {                     \
    type it;                   \
    unsigned char behind[256]; \
  }
#define BEGIN(name)                           \
  do {                                        \
    memset(&(name), 0xA5, sizeof(name));      \
    memset(&(name).it, 0, sizeof((name).it)); \
    (name).it.size = sizeof((name).it);       \
  } while (0)

static int untouched(const unsigned char* bytes) {
  for (int i = 0; i < 256; ++i) {
    if (bytes[i] != 0xA5) return 0;
  }
  return 1;
}

static terrace_runtime* open_runtime(void) {
  GUARDED(old_shape) shape;
  terrace_runtime* runtime = NULL;
  BEGIN(shape);
  shape.it.layers = 1;
  shape.it.query_heads = HEADS;
  shape.it.kv_heads = HEADS;
  shape.it.head_dim = DIM;
  EXPECT(terrace_runtime_open(NULL, &shape.it, &runtime) == 0);
  return runtime;
}

static void attend(terrace_step* step) {
  static float query[NUMBERS], output[NUMBERS];
  static uint16_t keys[NUMBERS], values[NUMBERS]; /* f16, the default */
  GUARDED(old_tensors) tensors;
  for (int i = 0; i < NUMBERS; ++i) values[i] = 0x3c00; /* 1 */
  BEGIN(tensors);
  tensors.it.query = query;
  tensors.it.keys = keys;
  tensors.it.values = values;
  tensors.it.kv_token_stride = sizeof(keys);
  tensors.it.kv_head_stride = DIM * sizeof(keys[0]);
  tensors.it.output = output;
  EXPECT(terrace_step_attend(step, 0, &tensors.it) == 0);
  for (int i = 0; i < NUMBERS; ++i) EXPECT(output[i] == 1);
}

static void run_step(terrace_runtime* runtime, terrace_queue* compute, terrace_sequence* sequence) {
  GUARDED(old_step_options) options;
  terrace_step* step = NULL;
  BEGIN(options);
  options.it.sequences = &sequence;
  options.it.count = 1;
  options.it.compute = compute;
  EXPECT(terrace_step_begin(runtime, &options.it, &step) == 0);
  attend(step);
  EXPECT(terrace_step_end(step, NULL) == 0);
  terrace_step_close(step);
}

int main(void) {
  GUARDED(old_options) options;
  GUARDED(old_needs) needs;
  terrace_runtime* const runtime = open_runtime();
  terrace_queue* compute = NULL;
  terrace_sequence* sequence = NULL;
  BEGIN(options);
  EXPECT(terrace_queue_wrap_caller(runtime, &options.it, &compute) == 0);
  EXPECT(terrace_sequence_open(runtime, &options.it, &sequence) == 0);
  BEGIN(needs);
  EXPECT(terrace_sequence_needs(sequence, &needs.it) == 0);
  EXPECT(untouched(needs.behind));
  run_step(runtime, compute, sequence);
  EXPECT(terrace_sequence_length(sequence) == 1);
  terrace_sequence_close(sequence);
  terrace_queue_close(compute);
  terrace_runtime_close(runtime);
  return 0;
}
