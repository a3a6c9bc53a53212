// Two queues; the second waits for the first. Given the argument `ignored_wait`, the stand-in
// ignores the wait, and the thread sanitizer has to report a race.
#include <cstdio>
#include <string_view>

#include "cuda_on_host/control.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace {

using namespace terrace;

Status run() {
  constexpr std::size_t bytes = std::size_t{1} << 20;
  TERRACE_ASSIGN(const auto backend, offload::CudaBackend::create({}));
  TERRACE_ASSIGN(const Buffer source, backend->allocate({.bytes = bytes, .tier = Tier::host}));
  TERRACE_ASSIGN(const Buffer middle, backend->allocate({.bytes = bytes}));
  TERRACE_ASSIGN(const Buffer target, backend->allocate({.bytes = bytes, .tier = Tier::host}));
  TERRACE_ASSIGN(const auto upload, backend->make_queue({.name = "upload"}));
  TERRACE_ASSIGN(const auto download, backend->make_queue({.name = "download"}));
  const CopyExtent up{middle.data(), source.data(), bytes};
  const CopyExtent down{target.data(), middle.data(), bytes};
  TERRACE_ASSIGN(const Ticket uploaded, upload->copy(Phase::refill, {&up, 1}));
  TERRACE_TRY(download->wait_for(uploaded));
  TERRACE_TRY(download->copy(Phase::offload, {&down, 1}));
  TERRACE_TRY(upload->drain(std::chrono::seconds(60)));
  return download->drain(std::chrono::seconds(60));
}

}  // namespace

int main(int count, char** arguments) {
  cuda_on_host::Device device;
  const bool ignored = count > 1 && std::string_view(arguments[1]) == "ignored_wait";
  device.set({.waits_are_ignored = ignored});
  const Status done = run();
  if (!done)
    std::fprintf(stderr, "%.*s\n", static_cast<int>(done.error().message().size()),
                 done.error().message().data());
  return done ? 0 : 1;
}
