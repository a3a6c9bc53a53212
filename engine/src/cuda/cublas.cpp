#include "cuda/cublas.hpp"

namespace terrace::engine::cuda {
namespace {

constexpr int as_stored = 0;   // CUBLAS_OP_N
constexpr int transposed = 1;  // CUBLAS_OP_T

}  // namespace

Result<std::unique_ptr<Cublas>> Cublas::create(const CublasFunctions& functions,
                                               std::byte* workspace, const Launch& launch) {
  std::unique_ptr<Cublas> made(new Cublas(functions));
  int status = functions.create(&made->handle_);
  // The stream first: setting it takes the workspace away.
  if (status == 0) status = functions.set_stream(made->handle_, launch.stream);
  if (status == 0) status = functions.set_workspace(made->handle_, workspace, workspace_bytes);
  if (status != 0) return fail(Errc::unsupported, "cuBLAS refuses the device: status {}", status);
  return made;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_.destroy(handle_);
}

Status Cublas::multiply(const MatrixProduct& product) const {
  // A matrix stored row by row is its transpose stored column by column, so this is
  // targetᵀ = weight sourceᵀ, whose weight arrives transposed.
  const auto outputs = static_cast<int>(product.outputs);
  const auto rows = static_cast<int>(product.rows);
  const auto inputs = static_cast<int>(product.inputs);
  const float one = 1.0F;
  const float kept = product.accumulate ? 1.0F : 0.0F;
  const int status =
      functions_.sgemm(handle_, transposed, as_stored, outputs, rows, inputs, &one, product.weight,
                       inputs, product.source, inputs, &kept, product.target, outputs);
  if (status != 0) {
    return fail(Errc::device_error,
                "cuBLAS: a product of {} x {} with {} rows ended with status {}", outputs, inputs,
                rows, status);
  }
  return {};
}

}  // namespace terrace::engine::cuda
