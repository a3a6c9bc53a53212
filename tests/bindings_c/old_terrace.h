/* A frozen header of binary interface 0: what a program was compiled with whose structs have only
 * the fields that each version of them has. It never changes: a library that this program does not
 * run with has another TERRACE_ABI_VERSION. */
#ifndef OLD_TERRACE_H
#define OLD_TERRACE_H

#include <stddef.h>
#include <stdint.h>

typedef int terrace_status; /* 0: good */
typedef struct terrace_runtime terrace_runtime;
typedef struct terrace_queue terrace_queue;
typedef struct terrace_sequence terrace_sequence;
typedef struct terrace_step terrace_step;

typedef struct old_shape {
  size_t size;
  size_t layers;
  size_t query_heads;
  size_t kv_heads;
  size_t head_dim;
} old_shape;

/* The options of queues, sequences and hints: all their fields are optional. */
typedef struct old_options {
  size_t size;
} old_options;

typedef struct old_step_options {
  size_t size;
  terrace_sequence* const* sequences;
  size_t count;
  const size_t* tokens;
  terrace_queue* compute;
} old_step_options;

typedef struct old_tensors {
  size_t size;
  const void* query;
  const void* keys;
  const void* values;
  size_t kv_token_stride;
  size_t kv_head_stride;
  void* output;
} old_tensors;

typedef struct old_needs {
  size_t size;
  size_t query_window_tokens;
} old_needs;

const char* terrace_message(void);
terrace_status terrace_runtime_open(const void* config, const old_shape* shape,
                                    terrace_runtime** runtime);
void terrace_runtime_close(terrace_runtime* runtime);
terrace_status terrace_queue_wrap_caller(terrace_runtime* runtime, const old_options* options,
                                         terrace_queue** queue);
void terrace_queue_close(terrace_queue* queue);
terrace_status terrace_sequence_open(terrace_runtime* runtime, const old_options* options,
                                     terrace_sequence** sequence);
void terrace_sequence_close(terrace_sequence* sequence);
size_t terrace_sequence_length(const terrace_sequence* sequence);
terrace_status terrace_sequence_needs(const terrace_sequence* sequence, old_needs* needs);
terrace_status terrace_step_begin(terrace_runtime* runtime, const old_step_options* options,
                                  terrace_step** step);
terrace_status terrace_step_attend(terrace_step* step, uint32_t layer, const old_tensors* tensors);
terrace_status terrace_step_end(terrace_step* step, const size_t* accepted);
void terrace_step_close(terrace_step* step);

#endif
