#include "kernels/sample_rows.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>

#include "terrace/core/bytes.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::bench {

Result<std::shared_ptr<SampleRows>> SampleRows::create(const KvShape& shape, std::size_t tokens,
                                                       std::uint64_t seed) {
  auto rows = std::make_shared<SampleRows>();
  rows->row_bytes_ = shape.row_bytes();
  rows->bytes_ = tokens * rows->row_bytes_;
  TERRACE_ASSIGN(rows->pool_, offload::HostMemory::create({}));
  TERRACE_ASSIGN(rows->data_, rows->pool_->allocate(rows->bytes_, 4096));
  // A mebibyte is drawn, and the rest repeats it: drawing all rows would take longer than
  // measuring. Each row's key and value have a first element of their own, so that no row is
  // skipped unnoticed.
  const std::size_t drawn = std::min(rows->bytes_, std::size_t{1} << 20);
  const std::size_t elements = drawn / size_bytes(shape.dtype);
  Rng rng(seed);
  const auto draw = [&rng] { return static_cast<float>(rng.uniform() - 0.5); };
  for (std::size_t i = 0; i < elements; ++i) store_f32(rows->data_, shape.dtype, i, draw());
  for (std::size_t at = drawn; at < rows->bytes_; at += drawn) {
    const std::size_t copied = std::min(drawn, rows->bytes_ - at);
    std::copy_n(rows->data_, copied, rows->data_ + at);
    const float mark = draw();
    for (std::size_t i = 0; i < copied / size_bytes(shape.dtype); i += shape.head_dim) {
      store_f32(rows->data_ + at, shape.dtype, i, mark);
    }
  }
  for (std::size_t at = 0; at < tokens; at += block_tokens) {
    rows->blocks_.push_back(rows->row(at));
  }
  return rows;
}

std::vector<std::byte*> cut_chunks(std::span<std::byte> memory, std::size_t bytes) {
  std::vector<std::byte*> chunks;
  chunks.reserve(memory.size() / bytes);
  for (std::size_t at = 0; at < memory.size(); at += bytes) chunks.push_back(&memory[at]);
  return chunks;
}

Status check_selected(std::span<const std::uint32_t> ids, std::span<const std::uint32_t> expected,
                      std::size_t others) {
  if (ids.size() != expected.size()) {
    return fail(Errc::corrupt, "{} are selected, not {}", ids.size(), expected.size());
  }
  std::vector<std::uint32_t> both;
  std::ranges::set_intersection(ids, expected, std::back_inserter(both));
  if (both.size() + others >= expected.size()) return {};
  return fail(Errc::corrupt, "{} of {} selected are those of the reference", both.size(),
              expected.size());
}

std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t seed) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  Rng rng(seed);
  for (std::size_t left = count; left > 1; --left) {
    std::swap(numbers[left - 1], numbers[rng.below(left)]);
  }
  return numbers;
}

std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> numbers(count);
  Rng rng(seed);
  std::normal_distribution<float> normal;
  for (float& number : numbers) number = normal(rng);
  return numbers;
}

}  // namespace terrace::bench
