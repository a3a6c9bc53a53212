#include "process_descriptor.hpp"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

namespace terrace::offload {
namespace {

struct OpenDescriptors {
  std::mutex mutex;  ///< guards all; held while the process forks
  std::vector<ProcessDescriptor*> all;
};

OpenDescriptors& open_descriptors() {
  static auto* const open = new OpenDescriptors();  // outlives all that is static
  return *open;
}

}  // namespace

ProcessDescriptor::ProcessDescriptor(int descriptor) : descriptor_(descriptor) {
  static std::once_flag once;
  std::call_once(once, [] {
    ::pthread_atfork([] { open_descriptors().mutex.lock(); },
                     [] { open_descriptors().mutex.unlock(); }, &close_all_in_child);
  });
  const std::scoped_lock lock(open_descriptors().mutex);
  open_descriptors().all.push_back(this);
}

void ProcessDescriptor::close_all_in_child() noexcept {
  for (ProcessDescriptor* const each : open_descriptors().all) {
    ::close(std::exchange(each->descriptor_, -1));
  }
  open_descriptors().all.clear();
  open_descriptors().mutex.unlock();
}

int ProcessDescriptor::release() noexcept {
  const std::scoped_lock lock(open_descriptors().mutex);
  std::erase(open_descriptors().all, this);
  return std::exchange(descriptor_, -1);
}

ProcessDescriptor::~ProcessDescriptor() {
  const int descriptor = release();
  if (descriptor >= 0) ::close(descriptor);
}

}  // namespace terrace::offload
