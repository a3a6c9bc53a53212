// Damages a good file in seeded random ways. The parser may accept or refuse, but what it accepts
// must lie inside the file, and nothing may crash (run it under the address sanitizer).
#include <gmock/gmock.h>

#include <cstdlib>

#include "safetensors_writer.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/engine/safetensors.hpp"

namespace terrace::engine {
namespace {

std::uint64_t seed_of_run() {
  const char* seed = std::getenv("TERRACE_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

std::string damage(std::string file, Rng& rng) {
  const auto place = [&] { return static_cast<std::size_t>(rng.below(file.size())); };
  // Bytes that mean something to a parser come up as often as all others together.
  constexpr std::string_view meaningful = "{}[]\",:0123456789-e\\\n\0\x7f\xff";
  for (std::uint64_t edits = 1 + rng.below(3); edits > 0 && file.size() > 1; --edits) {
    switch (rng.below(5)) {
      case 0:
        file[place()] = static_cast<char>(rng.below(256));
        break;
      case 1:
        file[place()] = meaningful[rng.below(meaningful.size())];
        break;
      case 2:
        file.erase(place(), 1 + rng.below(8));
        break;
      case 3:
        file.insert(place(), file.substr(place(), 1 + rng.below(16)));
        break;
      default:
        file.resize(1 + place());
        break;
    }
  }
  return file;
}

void expect_inside(const TensorMap& tensors, std::span<const std::byte> whole) {
  for (const auto& [name, tensor] : tensors) {
    ASSERT_GE(tensor.bytes.data(), whole.data()) << name;
    ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), whole.data() + whole.size()) << name;
    std::size_t count = 1;
    for (const std::size_t extent : tensor.shape) count *= extent;
    if (!tensor.dtype) continue;
    ASSERT_EQ(count * size_bytes(*tensor.dtype), tensor.bytes.size()) << name;
  }
}

TEST(SafetensorsMutation, NeverLeadsOutsideTheFile) {
  const std::string good =
      SafetensorsWriter().add("layer.a", {3, 4}).add("layer.b", {5}).add("layer.c", {1}).file();
  const std::uint64_t seed = seed_of_run();
  std::size_t accepted = 0;
  for (std::uint64_t round = 0; round < 20000; ++round) {
    Rng rng(seed, {round});
    const std::string text = damage(good, rng);
    const auto view = std::as_bytes(std::span(text));
    // A copy without spare capacity, so that the sanitizer sees one byte too far.
    const std::vector<std::byte> file(view.begin(), view.end());
    SCOPED_TRACE(fmt::format("TERRACE_SEED={} round {}", seed, round));
    const auto tensors = parse_safetensors(file, "x");
    if (tensors) {
      ++accepted;
      expect_inside(*tensors, file);
    } else {
      ASSERT_EQ(tensors.error().message().find('\n'), std::string_view::npos);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  // Damage to names and values goes unnoticed, so some files pass: else nothing was tested.
  EXPECT_GT(accepted, 100U);
}

}  // namespace
}  // namespace terrace::engine
