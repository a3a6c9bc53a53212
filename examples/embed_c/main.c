/* An engine in C: three sequences give their prompts in pieces and decode, all in one step of a
 * batch. Its model of three layers is made up; Terrace holds its KV memory.
 *
 * The budget is as large as the context, so that each step attends to every token: the engine holds
 * each output against attention that it computes by itself. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

enum { LAYERS = 3, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32 };
enum { QUERY = QUERY_HEADS * DIM, ROW = KV_HEADS * DIM };
enum { BATCH = 3, PIECE = 64, DECODED = 24, TOKENS_MAX = 512, STEP_TOKENS_MAX = BATCH * PIECE };

static const size_t prompts[BATCH] = {200, 320, 410};
/* All keys and values, for the engine's own attention. A real engine would not have them. */
static float keys[BATCH][LAYERS][TOKENS_MAX][ROW];
static float values[BATCH][LAYERS][TOKENS_MAX][ROW];

/* The tensors of one layer: all tokens of a step. */
static struct {
  float queries[STEP_TOKENS_MAX][QUERY];
  float keys[STEP_TOKENS_MAX][ROW];
  float values[STEP_TOKENS_MAX][ROW];
  float outputs[STEP_TOKENS_MAX][QUERY];
} layer_data;

typedef struct engine {
  terrace_config* config;
  terrace_runtime* runtime;
  terrace_queue* compute;
  terrace_sequence* sequences[BATCH];
  float error_max;
} engine;

/* Leaves the function where a call has failed, and says why. */
#define TRY(call)                                          \
  do {                                                     \
    if ((call) != TERRACE_OK) {                            \
      fprintf(stderr, "embed_c: %s\n", terrace_message()); \
      return 0;                                            \
    }                                                      \
  } while (0)

/* Stands for projections and RoPE: numbers from -1 to 1. */
static void make_up(float* numbers, size_t count, size_t seed) {
  uint32_t state = (uint32_t)(seed * 2654435761u + 12345u);
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
  }
}

/* Attention of one query head over tokens [0, position]. */
static void attend_plainly(size_t s, size_t layer, size_t position, size_t head, const float* query,
                           float* output) {
  const size_t at = head / (QUERY_HEADS / KV_HEADS) * DIM;
  double sum = 0, mixed[DIM] = {0};
  for (size_t token = 0; token <= position; ++token) {
    double logit = 0;
    for (size_t i = 0; i < DIM; ++i) logit += query[i] * keys[s][layer][token][at + i];
    const double weight = exp(logit / sqrt((double)DIM));
    sum += weight;
    for (size_t i = 0; i < DIM; ++i) mixed[i] += weight * values[s][layer][token][at + i];
  }
  for (size_t i = 0; i < DIM; ++i) output[i] = (float)(mixed[i] / sum);
}

static void check_output(engine* e, size_t s, size_t layer, size_t position, size_t place) {
  float expected[DIM];
  for (size_t head = 0; head < QUERY_HEADS; ++head) {
    attend_plainly(s, layer, position, head, &layer_data.queries[place][head * DIM], expected);
    for (size_t i = 0; i < DIM; ++i) {
      const float error = fabsf(expected[i] - layer_data.outputs[place][head * DIM + i]);
      if (!(error <= e->error_max)) e->error_max = error;
    }
  }
}

/* Queries, keys and values of one token. */
static void compute_inputs(size_t s, size_t layer, size_t position, size_t place) {
  const size_t seed = (s * LAYERS + layer) * TOKENS_MAX + position;
  make_up(layer_data.queries[place], QUERY, 3 * seed);
  make_up(layer_data.keys[place], ROW, 3 * seed + 1);
  make_up(layer_data.values[place], ROW, 3 * seed + 2);
  memcpy(keys[s][layer][position], layer_data.keys[place], sizeof(layer_data.keys[place]));
  memcpy(values[s][layer][position], layer_data.values[place], sizeof(layer_data.values[place]));
}

static int attend(engine* e, terrace_step* step, size_t layer, const size_t* tokens) {
  size_t place = 0;
  for (size_t s = 0; s < BATCH; ++s) {
    const size_t length = terrace_sequence_length(e->sequences[s]);
    for (size_t t = 0; t < tokens[s]; ++t) compute_inputs(s, layer, length + t, place++);
  }
  terrace_tensors tensors = TERRACE_TENSORS_INIT;
  tensors.query = layer_data.queries;
  tensors.keys = layer_data.keys;
  tensors.values = layer_data.values;
  tensors.kv_token_stride = sizeof(layer_data.keys[0]);
  tensors.kv_head_stride = DIM * sizeof(float);
  tensors.output = layer_data.outputs;
  TRY(terrace_step_attend(step, (uint32_t)layer, &tensors));
  place = 0; /* on a queue of this thread the outputs are there now */
  for (size_t s = 0; s < BATCH; ++s) {
    const size_t length = terrace_sequence_length(e->sequences[s]);
    for (size_t t = 0; t < tokens[s]; ++t) check_output(e, s, layer, length + t, place++);
  }
  return 1;
}

static int run_step(engine* e, const size_t* tokens) {
  terrace_step_options members = TERRACE_STEP_OPTIONS_INIT;
  members.sequences = e->sequences;
  members.count = BATCH;
  members.tokens = tokens;
  members.compute = e->compute;
  terrace_step* step = NULL;
  TRY(terrace_step_begin(e->runtime, &members, &step));
  int good = 1;
  for (size_t layer = 0; good && layer < LAYERS; ++layer) good = attend(e, step, layer, tokens);
  const terrace_status ended = good ? terrace_step_end(step, NULL) : TERRACE_OK;
  if (ended != TERRACE_OK) fprintf(stderr, "embed_c: %s\n", terrace_message());
  good = good && ended == TERRACE_OK;
  for (size_t s = 0; good && s < BATCH; ++s) {
    good = terrace_step_status(step, s) == TERRACE_OK;
    if (!good) fprintf(stderr, "embed_c: %s\n", terrace_message());
  }
  terrace_step_close(step);
  return good;
}

static int open_engine(engine* e) {
  terrace_shape shape = TERRACE_SHAPE_INIT;
  shape.layers = LAYERS;
  shape.query_heads = QUERY_HEADS;
  shape.kv_heads = KV_HEADS;
  shape.head_dim = DIM;
  shape.dtype = TERRACE_DTYPE_F32;
  TRY(terrace_config_create(&e->config));
  TRY(terrace_config_set(e->config, "backend", "host"));
  TRY(terrace_config_set(e->config, "retrieval.policy", "pqcache"));
  TRY(terrace_config_set(e->config, "retrieval.budget", "512"));
  TRY(terrace_config_set(e->config, "retrieval.window_share", "0.25"));
  TRY(terrace_runtime_open(e->config, &shape, &e->runtime));
  TRY(terrace_queue_wrap_caller(e->runtime, NULL, &e->compute));
  for (size_t s = 0; s < BATCH; ++s) {
    TRY(terrace_sequence_open(e->runtime, NULL, &e->sequences[s]));
    TRY(terrace_sequence_begin_prompt(e->sequences[s], prompts[s]));
  }
  return 1;
}

/* Pieces of prompts beside tokens that are decoded, until the longest prompt has its output. */
static int serve(engine* e, size_t* decoded) {
  for (size_t last = 0; last < DECODED; last = decoded[BATCH - 1]) {
    size_t tokens[BATCH];
    for (size_t s = 0; s < BATCH; ++s) {
      const size_t length = terrace_sequence_length(e->sequences[s]);
      const size_t lacking = length < prompts[s] ? prompts[s] - length : 1;
      tokens[s] = lacking < PIECE ? lacking : PIECE;
      if (length >= prompts[s]) ++decoded[s];
    }
    if (!run_step(e, tokens)) return 0;
  }
  return 1;
}

/* Reads one number of the counters. */
static double counter(terrace_sequence* sequence, const char* field) {
  const char* json = NULL;
  if (terrace_sequence_counters(sequence, &json) != TERRACE_OK) return 0;
  const char* const found = strstr(json, field);
  return found == NULL ? 0 : strtod(found + strlen(field), NULL);
}

static int report(const engine* e, const size_t* decoded) {
  double hits = 0, wanted = 0;
  size_t tokens = 0;
  for (size_t s = 0; s < BATCH; ++s) {
    const double hit = counter(e->sequences[s], "\"rows_hit\":");
    hits += hit;
    wanted += hit + counter(e->sequences[s], "\"rows_missed\":");
    tokens += decoded[s];
  }
  printf("%zu tokens decoded, hit rate %.2f, largest error %.1e\n", tokens,
         wanted > 0 ? hits / wanted : 0, (double)e->error_max);
  return e->error_max < 1e-4f;
}

int main(void) {
  engine e = {NULL, NULL, NULL, {NULL}, 0};
  size_t decoded[BATCH] = {0};
  const int good = open_engine(&e) && serve(&e, decoded) && report(&e, decoded);
  for (size_t s = 0; s < BATCH; ++s) terrace_sequence_close(e.sequences[s]);
  terrace_queue_close(e.compute);
  terrace_runtime_close(e.runtime);
  terrace_config_close(e.config);
  return good ? 0 : 1;
}
