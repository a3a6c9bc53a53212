/* A prompt that was computed before: prefix FILE. The first of two runtimes computes all of its
 * tokens and publishes them to FILE; the second one, as that of a later process, finds them there,
 * and computes the rest. The model is made up. */
#include <stdio.h>
#include <terrace.h>

enum { LAYERS = 2, HEADS = 2, DIM = 32, PROMPT = 300, NUMBERS = HEADS * DIM };

static uint32_t prompt[PROMPT]; /* ids of tokens */
static float queries[PROMPT][NUMBERS], keys[PROMPT][NUMBERS], values[PROMPT][NUMBERS];
static float outputs[PROMPT][NUMBERS];

/* Leaves the function where a call has failed, and says why. */
#define TRY(call)                                         \
  do {                                                    \
    if ((call) != TERRACE_OK) {                           \
      fprintf(stderr, "prefix: %s\n", terrace_message()); \
      return 0;                                           \
    }                                                     \
  } while (0)

static int open_runtime(const char* file, terrace_config* config, terrace_runtime** runtime) {
  terrace_shape shape = TERRACE_SHAPE_INIT;
  shape.layers = LAYERS, shape.query_heads = HEADS, shape.kv_heads = HEADS, shape.head_dim = DIM;
  shape.dtype = TERRACE_DTYPE_F32;
  TRY(terrace_config_set(config, "tier.nvme.path", file));
  TRY(terrace_config_set(config, "tier.nvme.bytes", "16MiB"));
  /* A real model has a digest of its weights here. */
  TRY(terrace_config_set(config, "tier.model", "sha256 of the weights"));
  TRY(terrace_runtime_open(config, &shape, runtime));
  return 1;
}

/* Computes tokens of the prompt, from the sequence's length on. */
static int compute_rest(terrace_runtime* runtime, terrace_queue* compute,
                        terrace_sequence* sequence) {
  const size_t tokens = PROMPT - terrace_sequence_length(sequence);
  terrace_step_options members = TERRACE_STEP_OPTIONS_INIT;
  terrace_tensors tensors = TERRACE_TENSORS_INIT;
  terrace_step* step = NULL;
  TRY(terrace_sequence_begin_prompt(sequence, tokens));
  members.sequences = &sequence, members.count = 1, members.tokens = &tokens;
  members.compute = compute;
  tensors.query = queries, tensors.keys = keys, tensors.values = values, tensors.output = outputs;
  tensors.kv_token_stride = sizeof(keys[0]), tensors.kv_head_stride = DIM * sizeof(float);
  TRY(terrace_step_begin(runtime, &members, &step));
  for (uint32_t layer = 0; layer < LAYERS; ++layer) {
    TRY(terrace_step_attend(step, layer, &tensors));
  }
  TRY(terrace_step_end(step, NULL));
  TRY(terrace_step_status(step, 0));
  terrace_step_close(step);
  return 1;
}

static int run(terrace_runtime* runtime) {
  terrace_queue* compute = NULL;
  terrace_sequence* sequence = NULL;
  terrace_prefix_query query = TERRACE_PREFIX_QUERY_INIT;
  terrace_publish_report report = TERRACE_PUBLISH_REPORT_INIT;
  size_t found = 0;
  TRY(terrace_queue_wrap_caller(runtime, NULL, &compute));
  query.tokens = prompt;
  query.token_count = PROMPT - 1; /* logits of the last token are wanted */
  query.salt = "a secret of the user", query.salt_bytes = 20;
  TRY(terrace_sequence_open_prefix(runtime, NULL, &query, &sequence, &found));
  if (!compute_rest(runtime, compute, sequence)) return 0;
  query.token_count = PROMPT;
  TRY(terrace_sequence_publish(sequence, &query, &report));
  printf("%zu of %d tokens were found, the file has %zu of them now\n", found, PROMPT,
         report.tokens);
  terrace_sequence_close(sequence);
  terrace_queue_close(compute);
  return 1;
}

int main(int count, char** arguments) {
  int good = count == 2;
  for (uint32_t token = 0; token < PROMPT; ++token) {
    prompt[token] = token;
    for (int i = 0; i < NUMBERS; ++i) {
      queries[token][i] = keys[token][i] = values[token][i] = (float)(token + (uint32_t)i) / 1000;
    }
  }
  for (int time = 0; good && time < 2; ++time) {
    terrace_config* config = NULL;
    terrace_runtime* runtime = NULL;
    good = terrace_config_create(&config) == TERRACE_OK &&
           open_runtime(arguments[1], config, &runtime) && run(runtime);
    terrace_runtime_close(runtime);
    terrace_config_close(config);
  }
  return good ? 0 : 1;
}
