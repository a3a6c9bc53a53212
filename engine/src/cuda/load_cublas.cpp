#include <dlfcn.h>

#include "cuda/cublas.hpp"

namespace terrace::engine::cuda {
namespace {

// Newest first. Handles of streams are the driver's, so any goes with the runtime linked in.
constexpr const char* names[] = {"libcublas.so.13", "libcublas.so.12"};

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, CublasFunctions& found) {
  return find(library, "cublasCreate_v2", found.create) &&
         find(library, "cublasDestroy_v2", found.destroy) &&
         find(library, "cublasSetStream_v2", found.set_stream) &&
         find(library, "cublasSetWorkspace_v2", found.set_workspace) &&
         find(library, "cublasSgemm_v2", found.sgemm);
}

}  // namespace

std::optional<CublasFunctions> load_cublas() {
  for (const char* const name : names) {
    // Never closed: it registers what runs when the program ends.
    void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CublasFunctions found{};
    if (library != nullptr && find_all(library, found)) return found;
  }
  return std::nullopt;
}

}  // namespace terrace::engine::cuda
