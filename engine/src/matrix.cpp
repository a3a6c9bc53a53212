#include "terrace/engine/matrix.hpp"

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "terrace/core/bytes.hpp"
#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

// Large enough for sgemm to reach its speed, small enough to give many threads work.
constexpr std::size_t tile_outputs = 256;
// Weights of one part of a single-row product: 256 KiB, some 20 microseconds of reading.
constexpr std::size_t part_weights = 65536;

void multiply_tile(const MatrixProduct& product, std::size_t row, std::size_t output) {
  const auto rows = std::min(multiply_tile_rows, product.rows - row);
  const auto outputs = std::min(tile_outputs, product.outputs - output);
  const auto inputs = static_cast<blasint>(product.inputs);
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(rows),
              static_cast<blasint>(outputs), inputs, 1.0F, product.source + row * product.inputs,
              inputs, product.weight + output * product.inputs, inputs,
              product.accumulate ? 1.0F : 0.0F, product.target + row * product.outputs + output,
              static_cast<blasint>(product.outputs));
}

void multiply_one_row(const MatrixProduct& product, Parallel& parallel) {
  const std::size_t part = std::max<std::size_t>(4, part_weights / product.inputs / 4 * 4);
  parallel.for_each(divide_up(product.outputs, part), [&](std::size_t i) {
    const std::size_t output = i * part;
    multiply_vector(product.weight + output * product.inputs,
                    std::min(part, product.outputs - output), product.inputs, product.source,
                    product.accumulate, product.target + output);
  });
}

}  // namespace

void keep_blas_on_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

Status check_room_for_blas(std::size_t threads) {
  // OpenBLAS maps so much for each thread that calls it, and keeps it.
  constexpr std::size_t thread_bytes = (std::size_t{128} << 20) + (std::size_t{1} << 16);
  // Until then others take some: the C library sets aside 64 to 128 MiB for each thread.
  constexpr std::size_t others_bytes = std::size_t{1} << 30;
  static std::atomic<std::size_t> asked{0};
  if (threads <= asked.load()) return {};
  const std::size_t bytes = threads * thread_bytes + others_bytes;
  // Address space alone: a limit of memory that is used is no concern here.
  void* const room =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return fail(Errc::out_of_memory,
                "no {} of address space are left for OpenBLAS on {} threads, and without them it "
                "hangs; raise the limit (ulimit -v)",
                format_size(bytes), threads);
  }
  ::munmap(room, bytes);
  asked.store(threads);
  return {};
}

void multiply(const MatrixProduct& product, Parallel& parallel) {
  if (product.rows == 1) return multiply_one_row(product, parallel);
  const std::size_t columns = divide_up(product.outputs, tile_outputs);
  parallel.for_each(divide_up(product.rows, multiply_tile_rows) * columns, [&](std::size_t tile) {
    multiply_tile(product, tile / columns * multiply_tile_rows, tile % columns * tile_outputs);
  });
}

}  // namespace terrace::engine
