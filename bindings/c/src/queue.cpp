#include "terrace/core/queue.hpp"

#include <algorithm>
#include <limits>

#include "handles.hpp"
#include "sized_struct.hpp"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::bindings {
namespace {

using Made = Result<std::unique_ptr<Queue>>;

/// More nanoseconds than a Duration has are all that it has.
Duration duration_of(std::uint64_t nanoseconds) noexcept {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Duration::rep>::max());
  return Duration{static_cast<Duration::rep>(std::min(nanoseconds, most))};
}

Result<offload::CallerQueueOptions> read_options(const terrace_queue_options* given) {
  TERRACE_ASSIGN(
      const terrace_queue_options options,
      read_optional_struct<terrace_queue_options>(given, TERRACE_QUEUE_OPTIONS_INIT, "options"));
  offload::CallerQueueOptions read;
  if (options.name != nullptr) read.name = options.name;
  if (options.wait_timeout_ns != 0) read.wait_timeout = duration_of(options.wait_timeout_ns);
  return read;
}

/// Makes a handle of the queue that `make` returns, of a backend and options.
template <typename Make>
terrace_status open_queue(std::string_view call, terrace_runtime* runtime,
                          const terrace_queue_options* given, terrace_queue** queue, Make make) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(queue, call, "queue"));
    *queue = nullptr;
    TERRACE_TRY(check_given(runtime, call, "runtime"));
    TERRACE_ASSIGN(const offload::CallerQueueOptions options, read_options(given));
    auto shared = std::make_shared<SharedQueue>();
    shared->runtime = runtime->shared;
    TERRACE_ASSIGN(shared->queue, make(runtime->shared->runtime->backend(), options));
    *queue = new terrace_queue{std::move(shared)};
    return {};
  });
}

}  // namespace
}  // namespace terrace::bindings

using namespace terrace;
using offload::CallerQueueOptions;

terrace_status terrace_queue_open(terrace_runtime* runtime, const terrace_queue_options* options,
                                  terrace_queue** queue) {
  return bindings::open_queue("terrace_queue_open", runtime, options, queue,
                              [](Backend& backend, const CallerQueueOptions& read) {
                                return backend.make_queue({.name = read.name});
                              });
}

terrace_status terrace_queue_wrap_caller(terrace_runtime* runtime,
                                         const terrace_queue_options* options,
                                         terrace_queue** queue) {
  return bindings::open_queue("terrace_queue_wrap_caller", runtime, options, queue,
                              offload::make_caller_queue);
}

terrace_status terrace_queue_wrap_stream(terrace_runtime* runtime, void* stream,
                                         const terrace_queue_options* options,
                                         terrace_queue** queue) {
  return bindings::open_queue("terrace_queue_wrap_stream", runtime, options, queue,
                              [=](Backend& backend, const CallerQueueOptions& read) {
                                return offload::wrap_stream(backend, stream, read);
                              });
}

terrace_status terrace_queue_drain(terrace_queue* queue, uint64_t timeout_ns) {
  return bindings::guarded([&]() -> Status {
    TERRACE_TRY(bindings::check_given(queue, "terrace_queue_drain", "queue"));
    return queue->shared->queue->drain(bindings::duration_of(timeout_ns));
  });
}

void terrace_queue_close(terrace_queue* queue) { delete queue; }
