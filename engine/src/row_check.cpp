#include "row_check.hpp"

#include <algorithm>
#include <cmath>

#include "terrace/engine/vector_math.hpp"

namespace terrace::engine {
namespace {

/// Says what to do where a dtype cannot hold a number. `finite`: f32 can hold it.
const char* advice(Dtype dtype, bool finite) {
  if (dtype == Dtype::f16 && finite) {
    return "f16 ends at 65504: store keys and values as bf16 or f32 (--kv-dtype bf16)";
  }
  return "are the model's weights damaged?";
}

tl::unexpected<Error> describe(std::size_t layer, const char* part, std::span<const float> numbers,
                               Dtype dtype) {
  const float first = *std::ranges::find_if_not(
      numbers, [&](const float& number) { return stay_finite({&number, 1}, dtype); });
  return fail(Errc::unsupported, "layer {}: a {} has the element {:.6g}, which {} cannot hold; {}",
              layer, part, first, to_string(dtype), advice(dtype, std::isfinite(first)));
}

}  // namespace

Status check_rows(std::size_t layer, std::span<const float> keys, std::span<const float> values,
                  Dtype dtype) {
  if (!stay_finite(keys, dtype)) return describe(layer, "key", keys, dtype);
  if (!stay_finite(values, dtype)) return describe(layer, "value", values, dtype);
  return {};
}

tl::unexpected<Error> unfit_rows(std::size_t layer, Dtype dtype) {
  return fail(Errc::unsupported, "layer {}: a key or value is more than {} can hold; {}", layer,
              to_string(dtype), advice(dtype, true));
}

Status check_logits(std::span<const float> logits, std::size_t position) {
  if (stay_finite(logits, Dtype::f32)) return {};
  return fail(Errc::unsupported,
              "position {}: a logit is not finite; are the model's weights damaged, or its "
              "activations too large for f32, or its keys and values for the KV dtype?",
              position);
}

}  // namespace terrace::engine
