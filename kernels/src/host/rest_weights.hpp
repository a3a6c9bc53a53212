// The softmax over selected rows and what groups have left of the others, without the rows of the
// latter: a group's rest is the mean of size rows less those that are selected, so that its logit
// and its value are sums of theirs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

/// Groups of a KV head. Arrays are padded up to `stride` with groups that have no rows left.
struct GroupsLeft {
  std::size_t stride = 0;           ///< a multiple of 16
  const float* sizes = nullptr;     ///< [stride]: rows that the mean is of
  const float* per_left = nullptr;  ///< [stride]: 1 / rows left, or 0 if no row is left
  const float* bias = nullptr;      ///< [stride]: ln(rows left), or -inf
};

/// Logits of one query head.
struct RestLogits {
  float* rows = nullptr;                    ///< [row_stride]: of selected rows, then -inf
  float* groups = nullptr;                  ///< [groups.stride]: of means
  const std::uint32_t* group_of = nullptr;  ///< [row_stride]
  std::size_t none = 0;  ///< the group of rows without a group: it has no rows left
  std::size_t row_count = 0;
  std::size_t row_stride = 0;  ///< a multiple of 16
  GroupsLeft left;
};

/// Makes of the logits of means those of what is left, with its bias: (size * mean - the sum of the
/// selected) / left + ln(left). `sums`: [left.stride], overwritten.
void leave_selected_out(const RestLogits& logits, float* sums) noexcept;

struct RestSoftmax {
  float maximum;  ///< of all logits
  float sum;      ///< of exp(logit - maximum)
};

/// Turns these logits into the weights of the values of rows and of means, and does not normalise
/// them. A row is given what its group's rest has of it, too, with the sign turned. `shares`:
/// [left.stride], overwritten.
RestSoftmax weigh_values(const RestLogits& logits, float* shares) noexcept;

}  // namespace terrace::kernels::host
