/*
 * Terrace for programs in C, and in languages that call C: the KV cache of long-context inference,
 * over the tiers of one device.
 *
 *   terrace_shape shape = TERRACE_SHAPE_INIT;           // layers, heads, head_dim of the model
 *   terrace_runtime_open(config, &shape, &runtime);
 *   terrace_queue_wrap_caller(runtime, NULL, &compute); // or wrap_stream: CUDA
 *   terrace_sequence_open(runtime, NULL, &sequence);
 *   terrace_sequence_begin_prompt(sequence, tokens);
 *   terrace_step_begin(runtime, &members, &step);       // a piece of a prompt, or one token
 *   terrace_step_attend(step, layer, &tensors);         // layer by layer
 *   terrace_step_end(step, NULL), terrace_step_close(step);
 *
 * docs/embedding-c.md has a program, and says which side owns which memory.
 *
 * Errors   Calls that can fail return a terrace_status. A failed call changes nothing that its
 *          description does not name, and sets the handle that it would have made to NULL.
 *          Each call returns TERRACE_INVALID_ARGUMENT for a NULL pointer that must not be NULL,
 *          TERRACE_OUT_OF_MEMORY if the heap is exhausted, and TERRACE_INTERNAL for a fault of
 *          Terrace itself; these are not listed below. Queries that cannot fail return for NULL
 *          the same as for an empty object
 * Handles  Each is closed once, in any order: a handle keeps the parts of others that it needs
 *          until it is closed. Closing NULL does nothing. A closed handle must not be used
 * Structs  Begin with their size in bytes, which the macros TERRACE_..._INIT set together with the
 *          defaults. A program that was built with an older header passes shorter structs: fields
 *          that it does not know have their defaults
 * Threads  A call may come from any thread, but one at a time for each handle, unless a description
 *          says more. Handles of one runtime may be used at once
 * Text     UTF-8, ends with a zero byte. Text that a call returns belongs to the handle, and is
 *          valid until the same call is made on the handle again, or the handle is closed
 * Units    Tokens, heads and layers are counted from 0. Sizes and strides of keys and values are
 *          bytes, other strides numbers (elements)
 */
#ifndef TERRACE_H
#define TERRACE_H

#include <stddef.h>
#include <stdint.h>

/* The version of this header. Before 1.0 each minor version may break programs. */
#define TERRACE_VERSION_MAJOR 0
#define TERRACE_VERSION_MINOR 2
#define TERRACE_VERSION_PATCH 0
/* The version of the binary interface: of the library's file name, libterrace.so.0. */
#define TERRACE_ABI_VERSION 0

#if defined(__GNUC__)
#define TERRACE_API __attribute__((visibility("default")))
#else
#define TERRACE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a failure, by what the caller can do about it. */
typedef enum terrace_status {
  TERRACE_OK = 0,
  TERRACE_INVALID_ARGUMENT = 1, /* correct the input */
  TERRACE_OUT_OF_MEMORY = 2,    /* shrink the request, close a sequence, or raise the limit */
  TERRACE_NOT_READY = 3,        /* wait and try again; nothing was lost */
  TERRACE_UNSUPPORTED = 4,      /* choose something else; asking again will not help */
  TERRACE_DEVICE_ERROR = 5,     /* this operation failed; the backend goes on */
  TERRACE_DEVICE_LOST = 6,      /* close the runtime and all of its handles */
  TERRACE_IO_ERROR = 7,         /* a file or store failed */
  TERRACE_CORRUPT = 8,          /* bytes are not what was written */
  TERRACE_CANCELLED = 9,        /* stopped on request or at a deadline */
  TERRACE_INTERNAL = 100        /* a fault of Terrace itself; please report its message */
} terrace_status;

/* Element types. */
typedef enum terrace_dtype {
  TERRACE_DTYPE_F32 = 0,
  TERRACE_DTYPE_F16 = 1,
  TERRACE_DTYPE_BF16 = 2
} terrace_dtype;

/* The state of a sequence, which decides the calls that it accepts. 1 is not used. */
typedef enum terrace_phase {
  TERRACE_PHASE_IDLE = 0,   /* all calls but resume */
  TERRACE_PHASE_STEP = 2,   /* in an open step: the calls of the step */
  TERRACE_PHASE_PAUSED = 3, /* resume */
  TERRACE_PHASE_LOST = 4    /* only to be closed: rows are missing */
} terrace_phase;

typedef struct terrace_config terrace_config;
typedef struct terrace_runtime terrace_runtime;
typedef struct terrace_queue terrace_queue;
typedef struct terrace_sequence terrace_sequence;
typedef struct terrace_step terrace_step;

/* ---- The library ---------------------------------------------------------------------------- */

/* Returns the version of the library that runs, as "0.1.0". */
TERRACE_API const char* terrace_version(void);

/* Returns the version of the binary interface of the library that runs. A program that loads the
 * library by name compares it with TERRACE_ABI_VERSION; the linker does so for others. */
TERRACE_API uint32_t terrace_abi_version(void);

/* Returns the message of this thread's last failed call: one line, with names and what to do. Empty
 * if no call has failed, never NULL; valid until this thread's next call that fails. A call that
 * succeeds leaves it as it is. */
TERRACE_API const char* terrace_message(void);

/* ---- Settings: the keys of the command line ------------------------------------------------- */

/* Makes settings that are all at their defaults. */
TERRACE_API terrace_status terrace_config_create(terrace_config** config);
TERRACE_API void terrace_config_close(terrace_config* config);

/* Reads a file of YAML, or of JSON, as `terrace tune --write-config` writes it.
 *
 * Errors   TERRACE_IO_ERROR: the file cannot be read; TERRACE_INVALID_ARGUMENT: with file, line and
 *          what is wrong there. Keys before the error are set */
TERRACE_API terrace_status terrace_config_load(terrace_config* config, const char* path);

/* Reads settings from a text; messages call it `name`. */
TERRACE_API terrace_status terrace_config_parse(terrace_config* config, const char* text,
                                                const char* name);

/* Reads the process's variables, as TERRACE_CACHE_POLICY for cache.policy; they win over a file. No
 * thread may change the environment meanwhile. Other variables are ignored.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: a value that a key does not accept; or a variable that is no
 *          key's and nearly has the name of one, before anything is set: it names that one */
TERRACE_API terrace_status terrace_config_load_environment(terrace_config* config);

/* Sets one key; it wins over a file and the environment, even if those are read later.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: names the key and the nearest known key, or says what
 *          the key accepts */
TERRACE_API terrace_status terrace_config_set(terrace_config* config, const char* key,
                                              const char* value);

/* Gives the value in force. The text is valid until the settings change.
 * Errors   TERRACE_INVALID_ARGUMENT: no such key */
TERRACE_API terrace_status terrace_config_get(const terrace_config* config, const char* key,
                                              const char** value);

/* Gives all keys as a JSON list of objects: name, value, origin (default, file, environment, flag),
 * place (where it was set), default, accepts, meaning. */
TERRACE_API terrace_status terrace_config_keys(terrace_config* config, const char** json);

/* ---- Runtime: one model's KV memory --------------------------------------------------------- */

/* The shape of a model's KV cache. */
typedef struct terrace_shape {
  size_t size;
  size_t layers;
  size_t query_heads; /* a multiple of kv_heads */
  size_t kv_heads;
  size_t head_dim; /* even, at most 1024 */
  /* terrace_dtype of stored keys and values. This field wins over kv.dtype of a file or the
   * environment; if terrace_config_set has set kv.dtype, both must be equal. */
  int32_t dtype;
  float softmax_scale; /* what a query times a key is multiplied by; 0 = 1 / sqrt(head_dim) */
} terrace_shape;
#define TERRACE_SHAPE_INIT {sizeof(terrace_shape), 0, 0, 0, 0, TERRACE_DTYPE_F16, 0}

/* Makes the backend and the runtime that settings ask for (NULL: all defaults). Later changes of
 * the settings have no effect on it. A container's limits and a machine profile are not looked at.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: settings or shape that do not fit, by name;
 *          TERRACE_UNSUPPORTED: a backend or a policy that is not there, or cannot do it;
 *          TERRACE_OUT_OF_MEMORY; those of a device */
TERRACE_API terrace_status terrace_runtime_open(const terrace_config* config,
                                                const terrace_shape* shape,
                                                terrace_runtime** runtime);

/* Closes the runtime. Calls that change its sequences and steps, or read rows, are then
 * TERRACE_INVALID_ARGUMENT; closing them works. Memory and threads go with the last handle.
 * Threads  no other call may be made on the handle at the time */
TERRACE_API void terrace_runtime_close(terrace_runtime* runtime);

/* A sequence that may come, and the steps that it will take. Counts of tokens in a step that are 0
 * stand for 1, and those above `tokens` for `tokens`. */
typedef struct terrace_need_query {
  size_t size;
  size_t tokens;      /* that it grows to, prompts and outputs */
  size_t step_tokens; /* of a prompt's largest piece */
  /* Tokens of its first prompt; 0: not known, perhaps all. */
  size_t prompt_tokens;
  /* Tokens of its largest draft, for which it keeps memory; 1: it takes no drafts. */
  size_t draft_tokens;
  /* Tokens of its longest later prompt; 0: it has only one prompt. */
  size_t later_prompt_tokens;
  /* Sequences that share the cache, this one included; 0: those that share it now, and this one. */
  size_t cache_sharers;
  int32_t dtype;    /* terrace_dtype of queries and outputs (terrace_step_options) */
  int32_t reserved; /* 0 */
} terrace_need_query;
#define TERRACE_NEED_QUERY_INIT {sizeof(terrace_need_query), 0, 1, 0, 1, 0, 0, TERRACE_DTYPE_F32, 0}

/* The memory that a sequence takes: bytes at most, each part as of the moment at which it is
 * largest.
 *
 * Device   steps find room if held, cache and step of all sequences and the largest shared part fit
 *          into device.memory together; each step under way at the same time has a shared part of
 *          its own
 * Host     the parts that count against host.memory. Pages of rows are taken in regions of up to
 *          64 MiB: leave that much beside all sequences' rows, index and rest */
typedef struct terrace_memory_need {
  size_t size;
  size_t device_held;   /* while it decodes one token a step; see terrace_runtime_device_bytes */
  size_t device_cache;  /* its share of the cache */
  size_t device_step;   /* a step's own, until it has ended */
  size_t device_shared; /* once for all sequences of a step */
  size_t host_rows;
  size_t host_index;
  size_t host_rest;
  size_t index_bytes; /* of the indexes of all layers, which a step scans; in other parts, too */
} terrace_memory_need;
#define TERRACE_MEMORY_NEED_INIT {sizeof(terrace_memory_need), 0, 0, 0, 0, 0, 0, 0, 0}

/* Returns the memory that one more sequence takes at most in each tier, and the additional memory
 * of its steps, for admission: sets those fields that `need->size` has room for. Threads: any, at
 * once.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: no sequence gets that long, or size_t does not count it */
TERRACE_API terrace_status terrace_runtime_memory_need(const terrace_runtime* runtime,
                                                       const terrace_need_query* query,
                                                       terrace_memory_need* need);

/* Returns terrace_memory_need.device_held: device memory, in bytes, that one more sequence takes at
 * most while it decodes up to `tokens` tokens one by one: rows of sinks and window, indexes,
 * selections, scratch. For more tokens than a sequence may have it returns SIZE_MAX: no memory has
 * room for them. Threads: any, at once. */
TERRACE_API size_t terrace_runtime_device_bytes(const terrace_runtime* runtime, size_t tokens);

/* Returns how many sequences exist. A step may keep sequences whose handles are closed. Threads:
 * any, at once. */
TERRACE_API size_t terrace_runtime_sequences(const terrace_runtime* runtime);

/* Gives the runtime's traits as a JSON object (docs/embedding-c.md): its backend and why it was
 * chosen, the policies, their needs and their abilities. The text is valid until the
 * runtime is closed. Threads: any, at once. */
TERRACE_API terrace_status terrace_runtime_traits(const terrace_runtime* runtime,
                                                  const char** json);

/* ---- Queues: where a step's work is put in order -------------------------------------------- */

typedef struct terrace_queue_options {
  size_t size;
  const char* name; /* in messages; NULL: "compute" */
  /* How long a wrapped queue lets its thread wait for work of other queues; 0: 30 s. */
  uint64_t wait_timeout_ns;
} terrace_queue_options;
#define TERRACE_QUEUE_OPTIONS_INIT {sizeof(terrace_queue_options), NULL, 0}

/* Makes a queue of the runtime's backend. Its work runs on other threads: outputs are there once
 * terrace_queue_drain or terrace_step_end has returned. `options` may be NULL here and below. */
TERRACE_API terrace_status terrace_queue_open(terrace_runtime* runtime,
                                              const terrace_queue_options* options,
                                              terrace_queue** queue);

/* Makes a queue of the calling thread, on backend host: work is done when the call that enqueues it
 * returns, so that an engine reads the output of a layer at once. For engines that compute on a
 * thread of their own. Errors: TERRACE_INVALID_ARGUMENT: another backend. */
TERRACE_API terrace_status terrace_queue_wrap_caller(terrace_runtime* runtime,
                                                     const terrace_queue_options* options,
                                                     terrace_queue** queue);

/* Makes a queue of a stream of CUDA (a cudaStream_t; NULL is the default stream), on backend cuda.
 * Each call that enqueues work puts it on the stream: after the engine's work there so far, and
 * before the engine's next work. The stream must be there until the queue is closed, and all steps
 * on it, and all sequences that were lost in one; it must not be captured meanwhile.
 *
 * Errors   TERRACE_UNSUPPORTED: the library was built without CUDA; TERRACE_INVALID_ARGUMENT:
 *          another backend; those of the device */
TERRACE_API terrace_status terrace_queue_wrap_stream(terrace_runtime* runtime, void* stream,
                                                     const terrace_queue_options* options,
                                                     terrace_queue** queue);

/* Waits until all that was enqueued is done.
 * Errors   TERRACE_NOT_READY: not within `timeout_ns`, and the work goes on; the work's own, which
 *          end the step that it is of: close that one. Threads: any, at once */
TERRACE_API terrace_status terrace_queue_drain(terrace_queue* queue, uint64_t timeout_ns);

TERRACE_API void terrace_queue_close(terrace_queue* queue);

/* ---- Sequences ------------------------------------------------------------------------------ */

typedef struct terrace_sequence_options {
  size_t size;
  /* Tokens that it will have at most; 0: not known. */
  size_t expected_tokens;
} terrace_sequence_options;
#define TERRACE_SEQUENCE_OPTIONS_INIT {sizeof(terrace_sequence_options), 0}

/* The hints that policies need of an engine besides keys and values (terrace_prompt_hints). */
typedef struct terrace_needs {
  size_t size;
  size_t query_window_tokens; /* queries of so many last positions of a prompt; 0: not needed */
  /* 1: keys before RoPE, of prompts' tokens or, for some retention policies, of all tokens. */
  int32_t pre_rope_keys;
  int32_t attention_scores; /* 1: attention weights of prompts' tokens */
  int32_t speculated_query; /* 1: terrace_tensors.speculated_query */
  int32_t reserved;         /* 0 */
} terrace_needs;
#define TERRACE_NEEDS_INIT {sizeof(terrace_needs), 0, 0, 0, 0, 0}

/* Opens an empty sequence; `options` may be NULL.
 *
 * Errors   TERRACE_OUT_OF_MEMORY: also if placement is offload and a sequence of the expected
 * tokens would not fit in the whole device memory that the settings grant, in steps of one token
 *          and without its cache */
TERRACE_API terrace_status terrace_sequence_open(terrace_runtime* runtime,
                                                 const terrace_sequence_options* options,
                                                 terrace_sequence** sequence);

/* Tokens that sequences begin with, whose rows and indexes the file tier.nvme.path keeps, or the
 * daemon of daemon.socket: in chunks of tier.chunk_tokens tokens, for this process and later ones,
 * with the daemon for others beside it, too. docs/embedding-c.md says what rows are found by. */
typedef struct terrace_prefix_query {
  size_t size;
  /* [token_count], from the sequence's first token on. A sequence needs a token after those that
   * are found: a program that computes logits of the last token asks for all tokens but that one.
   * NULL where token_count is 0. */
  const uint32_t* tokens;
  size_t token_count;
  /* [salt_bytes], a tenant's secret of any bytes: prefixes with another one are never found. */
  const void* salt;
  size_t salt_bytes;
  /* 1 = also tokens behind the last whole chunk, which only a query of exactly these tokens finds:
   * what is published with all its tokens, and closed, goes on with the same bits. 0 = no tail. */
  int32_t with_tail;
  int32_t reserved; /* 0 */
  /* [hash_count * hash_bytes], in place of tokens: hashes of an engine's own blocks of hash_tokens
   * tokens, a divisor of tier.chunk_tokens; at most 64 bytes each. A hash stands for all that rows
   * of its tokens depend on, and finds what was published with hashes. */
  const void* hashes;
  size_t hash_count, hash_bytes, hash_tokens;
} terrace_prefix_query;
#define TERRACE_PREFIX_QUERY_INIT \
  {sizeof(terrace_prefix_query), NULL, 0, NULL, 0, 0, 0, NULL, 0, 0, 0}

/* As terrace_sequence_open, but the sequence begins with the longest stored prefix of the query's
 * tokens: whole chunks or, with with_tail, all tokens. terrace_sequence_length tells how many
 * tokens these are, as does `found`, which may be NULL. Rows are loaded when a step selects them.
 * The sequence is empty where nothing is found, the store fails, or no prefixes are kept
 * (terrace_sequence_publish says why).
 *
 * Order    returns when what the next step needs is on the device
 * Errors   those of terrace_sequence_open, and hashes that fit no chunks; `found` is 0 then */
TERRACE_API terrace_status terrace_sequence_open_prefix(terrace_runtime* runtime,
                                                        const terrace_sequence_options* options,
                                                        const terrace_prefix_query* query,
                                                        terrace_sequence** sequence, size_t* found);

/* Closes it: its memory is given back at once, or when its open step has been closed. */
TERRACE_API void terrace_sequence_close(terrace_sequence* sequence);

/* Returns how many tokens it has: a step's are added when the step ends. Returns 0 for NULL. */
TERRACE_API size_t terrace_sequence_length(const terrace_sequence* sequence);

/* Returns how many tokens have rows that can be read, from the first one on: all of them, unless
 * the store below host memory could not give rows back. Steps fail then whenever they need these.
 * An embedder goes on by terrace_sequence_truncate to so many tokens, and gives the rest of the
 * tokens again. Returns 0 for NULL. */
TERRACE_API size_t terrace_sequence_readable_tokens(const terrace_sequence* sequence);

/* Returns its state, TERRACE_PHASE_LOST for NULL. */
TERRACE_API terrace_phase terrace_sequence_phase(const terrace_sequence* sequence);

/* Returns the hints that its steps have to bring: sets those fields that `needs->size` has room
 * for. */
TERRACE_API terrace_status terrace_sequence_needs(const terrace_sequence* sequence,
                                                  terrace_needs* needs);

/* Announces that the next `tokens` tokens are a prompt, or more of one, that comes in steps in
 * pieces of any size. The tokens attend exactly, and are indexed together. 0 ends a prompt early:
 * the tokens that have come are indexed.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: the sequence is not idle, or would get too long; those of
 *          indexing what is there: TERRACE_OUT_OF_MEMORY, TERRACE_NOT_READY. A prompt that was to
 *          begin has not; one that was to end has, and is indexed later */
TERRACE_API terrace_status terrace_sequence_begin_prompt(terrace_sequence* sequence, size_t tokens);

/* Takes the tokens from `length` on back, and ends a prompt.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: not idle, or shorter; else its phase and length say how far it
 *          came: as before, or truncated and paused, or lost */
TERRACE_API terrace_status terrace_sequence_truncate(terrace_sequence* sequence, size_t length);

/* Opens a sequence with the same tokens. Memory of the host is shared.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: not idle; TERRACE_OUT_OF_MEMORY; TERRACE_NOT_READY: no copy
 *          ends in time */
TERRACE_API terrace_status terrace_sequence_fork(terrace_sequence* sequence,
                                                 terrace_sequence** twin);

/* Gives up all device memory; resume brings back the rows that a step needs.
 *
 * Errors   TERRACE_UNSUPPORTED: a policy that keeps everything (full) has no copy on the host;
 *          TERRACE_INVALID_ARGUMENT: not idle, or not paused; TERRACE_NOT_READY */
TERRACE_API terrace_status terrace_sequence_pause(terrace_sequence* sequence);
TERRACE_API terrace_status terrace_sequence_resume(terrace_sequence* sequence);

/* Returns 1 if the next step would not wait for an index that is being built, else 0 as for NULL.
 */
TERRACE_API int terrace_sequence_index_ready(const terrace_sequence* sequence);

/* Waits until indexes are built. Errors: TERRACE_NOT_READY: past the setting `deadline`; those of
 * building, which is tried again. */
TERRACE_API terrace_status terrace_sequence_await_indexes(terrace_sequence* sequence);

/* The work of terrace_sequence_publish. */
typedef struct terrace_publish_report {
  size_t size;
  size_t tokens;    /* that the store has now, of whole chunks */
  size_t chunks;    /* that were written; the store had the others */
  uint64_t bytes;   /* of rows and indexes that were written */
  int32_t indexed;  /* 1: the store has indexes of all these tokens */
  int32_t reserved; /* 0 */
} terrace_publish_report;
#define TERRACE_PUBLISH_REPORT_INIT {sizeof(terrace_publish_report), 0, 0, 0, 0, 0}

/* Keeps the sequence's first tokens, which are the query's, as a prefix that
 * terrace_sequence_open_prefix finds: the rows of whole chunks that the store lacks, and the
 * indexes at their end. Terrace cannot check that the tokens are those whose rows the sequence has.
 * Sets those fields that `report->size` has room for; `report` may be NULL.
 *
 * Order    returns when all is in the store
 * Errors   TERRACE_UNSUPPORTED: no prefixes are kept: that needs tier.nvme.path or daemon.socket,
 *          tier.model, a policy that keeps rows on the host, and no retention;
 *          TERRACE_INVALID_ARGUMENT: not idle, more tokens than it has, hashes that fit no chunks;
 *          TERRACE_OUT_OF_MEMORY: the file is full; TERRACE_NOT_READY: no daemon answers;
 *          TERRACE_IO_ERROR. The sequence is as before, and chunks that were written stay */
TERRACE_API terrace_status terrace_sequence_publish(terrace_sequence* sequence,
                                                    const terrace_prefix_query* query,
                                                    terrace_publish_report* report);

/* Copies rows of a KV head, from whichever tier has them.
 *
 * Shapes   positions [count], in any order; target [count, 2, head_dim]: key, then value
 * Layout   packed, KV dtype, host memory
 * Errors   TERRACE_INVALID_ARGUMENT: not idle, no such layer, head or position, target_bytes other
 *          than count rows; then nothing was read. TERRACE_NOT_READY */
TERRACE_API terrace_status terrace_sequence_read_rows(terrace_sequence* sequence, uint32_t layer,
                                                      uint32_t kv_head, const uint32_t* positions,
                                                      size_t count, void* target,
                                                      size_t target_bytes);

/* Gives counts of work and moved bytes, as a JSON object (docs/embedding-c.md). */
TERRACE_API terrace_status terrace_sequence_counters(terrace_sequence* sequence, const char** json);

/* ---- Steps: one pass of a batch through all layers ------------------------------------------ */

typedef struct terrace_step_options {
  size_t size;
  terrace_sequence* const* sequences; /* [count] */
  size_t count;                       /* 1 or more */
  const size_t* tokens;               /* [count]; NULL: one of each */
  terrace_queue* compute;             /* of the same runtime */
  /* terrace_dtype of queries and outputs that the layers will bring. Room to convert them is made
   * at begin, while rows can still be evicted; a layer that brings another type fails if there
   * is no room. */
  int32_t dtype;
  int32_t reserved; /* 0 */
} terrace_step_options;
#define TERRACE_STEP_OPTIONS_INIT \
  {sizeof(terrace_step_options), NULL, 0, NULL, NULL, TERRACE_DTYPE_F32, 0}

/* The hints of one sequence's tokens, of announced prompts: those that terrace_sequence_needs asks
 * for. f32, host memory, packed; counts are of numbers. */
typedef struct terrace_prompt_hints {
  size_t size;
  const float* pre_rope_keys; /* [tokens, kv_heads, head_dim] */
  size_t pre_rope_key_count;
  const float* query_window; /* [positions, query_heads, head_dim], after RoPE */
  size_t query_window_count;
  const float* attention_scores; /* [kv_heads, tokens], summed over the queries of a head's group */
  size_t attention_score_count;
} terrace_prompt_hints;
#define TERRACE_PROMPT_HINTS_INIT {sizeof(terrace_prompt_hints), NULL, 0, NULL, 0, NULL, 0}

/* The tensors of one layer: all tokens of the first sequence, then those of the second, and so on.
 * Device memory: on backend host any memory. The parts of a sequence that has failed are neither
 * read nor written.
 *
 * Element i of (token, head) of keys and values lies at
 *   token * kv_token_stride + head * kv_head_stride + i * size of the KV dtype, in bytes;
 * both strides must be given. Terrace does not check whether rows are finite: a caller that rounds
 * f32 to f16 has to refuse numbers that f16 cannot hold. */
typedef struct terrace_tensors {
  size_t size;
  const void* query;      /* [tokens, query_heads, head_dim], after RoPE */
  const void* keys;       /* [tokens, kv_heads, head_dim], KV dtype, after RoPE */
  const void* values;     /* the same */
  size_t kv_token_stride; /* bytes */
  size_t kv_head_stride;  /* bytes */
  void* output;           /* out [tokens, query_heads, head_dim]; not over keys or values */
  /* terrace_dtype of queries and outputs. Terrace computes in f32; outputs are rounded to the
   * nearest, ties to even. */
  int32_t dtype;
  int32_t reserved;     /* 0 */
  size_t query_stride;  /* from token to token, in numbers; 0: packed */
  size_t output_stride; /* the same */
  /* [tokens, query_heads, head_dim] f32, if a policy needs it: the queries that the model expects
   * to have in this layer, projected from the layer before's input; in layer 0 the queries. */
  const float* speculated_query;
  size_t speculated_query_stride;           /* numbers; must be given with speculated_query */
  const terrace_prompt_hints* const* hints; /* [sequences], NULL for a sequence without; or NULL */
} terrace_tensors;
#define TERRACE_TENSORS_INIT \
  {sizeof(terrace_tensors), NULL, NULL, NULL, 0, 0, NULL, TERRACE_DTYPE_F32, 0, 0, 0, NULL, 0, NULL}

/* The rows that one sequence's token attends to, for an engine with an attention kernel of its own:
 * first sinks, then the window, then what was selected. Pointers to rows are device memory. */
typedef struct terrace_view {
  size_t size;
  /* Blocks of sinks and window: row of position p, KV head h is number
   * h * block_tokens + p % block_tokens in blocks[p / block_tokens]. Host memory. */
  void* const* blocks;
  size_t block_tokens;
  size_t sinks_begin; /* positions [begin, end) */
  size_t sinks_end;
  size_t window_begin;
  size_t window_end;              /* after the step's own token */
  void* const* selected;          /* [lists, selected_stride] pointers to rows; device memory */
  const uint32_t* selected_count; /* [lists]; device memory */
  size_t selected_stride;
  size_t lists; /* kv_heads, or query_heads where each has its own */
} terrace_view;
#define TERRACE_VIEW_INIT {sizeof(terrace_view), NULL, 0, 0, 0, 0, 0, NULL, NULL, 0, 0}

/* Begins a step of all these sequences, with tokens from their lengths on: makes room for them.
 * Several tokens of a sequence are a piece of its announced prompt, or a draft, which is decoded
 * token by token. A sequence that cannot begin takes no part, and terrace_step_status says why.
 * Until the step has ended, only length, phase and needs of the sequences may be read; they may be
 * closed.
 *
 * Errors   TERRACE_INVALID_ARGUMENT: no sequences, or a sequence or queue of another runtime */
TERRACE_API terrace_status terrace_step_begin(terrace_runtime* runtime,
                                              const terrace_step_options* options,
                                              terrace_step** step);

/* Enqueues append, selection, fetch and attention of one layer. Layers come in order, from 0.
 *
 * Order    work that is on the compute queue so far must produce the tensors; they stay as they are
 *          until the step has ended or is closed. The output is written in the queue's order
 * Errors   TERRACE_INVALID_ARGUMENT: not the layer's turn, a tensor that is missing, tokens that
 *          overlap, hints that are missing; then nothing is enqueued. Failures of work that the
 *          sequences share: all that comes after says the same, and the step can only be closed */
TERRACE_API terrace_status terrace_step_attend(terrace_step* step, uint32_t layer,
                                               const terrace_tensors* tensors);

/* As terrace_step_attend, without attention, for steps of one token a sequence; no output is
 * needed. `views` [sequences] are set; that of a sequence which has failed stays as it is. The rows
 * are read by work that is on the compute queue before the step's next call.
 *
 * Errors   as terrace_step_attend; TERRACE_INVALID_ARGUMENT: several tokens; TERRACE_UNSUPPORTED:
 *          the policy needs a logit bias or estimates (wave: set wave.estimated_share to 0). A
 *          sequence's status is TERRACE_NOT_READY where it attends to rows that lie on the host
 *          alone: before its index is built, and in prompts */
TERRACE_API terrace_status terrace_step_gather(terrace_step* step, uint32_t layer,
                                               const terrace_tensors* tensors,
                                               terrace_view* const* views);

/* Enqueues the storing of one layer's rows alone, where the engine has computed the attention of a
 * prompt itself: for steps of pieces of announced prompts. The tensors' query and output
 * are ignored.
 *
 * Errors   as terrace_step_attend; TERRACE_INVALID_ARGUMENT: tokens that decode, or of a prompt
 *          that selects (retrieval.prompts); TERRACE_UNSUPPORTED: a retention policy, which goes by
 *          queries */
TERRACE_API terrace_status terrace_step_append(terrace_step* step, uint32_t layer,
                                               const terrace_tensors* tensors);

/* Ends the step, once all layers are enqueued: looks after the caches beside their compute, and
 * waits until rows are on the host and compute is done. Each sequence that has not failed gets
 * longer by its tokens, or by accepted[i] of them (NULL: all): a draft's other tokens are dropped,
 * without effect.
 *
 * Shapes   accepted [sequences]
 * Errors   TERRACE_INVALID_ARGUMENT: not all layers were attended to, or more accepted than there
 *          are: the step goes on. For other errors it is abandoned: failures of work that
 *          the sequences share. terrace_step_status returns the failure of a single sequence */
TERRACE_API terrace_status terrace_step_end(terrace_step* step, const size_t* accepted);

/* Returns the status of a sequence, by its place in the step, and sets the message: TERRACE_OK, or
 * why it took no part, or why its tokens were not kept. A failed sequence is as before the
 * step, unless its phase says that it is lost. TERRACE_INVALID_ARGUMENT also if there is no such
 * place. */
TERRACE_API terrace_status terrace_step_status(const terrace_step* step, size_t sequence);

/* Returns how many sequences it was begun with. */
TERRACE_API size_t terrace_step_sequences(const terrace_step* step);

/* Closes the step. A step that has not ended is abandoned: no sequence gets longer. The call waits
 * for enqueued work. */
TERRACE_API void terrace_step_close(terrace_step* step);

#ifdef __cplusplus
}
#endif

#endif /* TERRACE_H */
