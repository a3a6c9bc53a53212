// A layer on the host, parts of it on the device, and selections from it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "kernels/seed.hpp"

namespace terrace::testing {

/// A layer with all rows on the host and some also on the device, and a selection from it.
class ResolveScenario {
 public:
  ResolveScenario(ListScope scope, std::size_t group, std::size_t list_size,
                  std::size_t head_dim = 8)
      : scope_(scope),
        shape_(make_shape(group, 2, head_dim, Dtype::f16)),
        lists_(scope == ListScope::kv_head ? 2 : 2 * group),
        stride_(list_size + 3),
        host_(shape_, 16, positions),
        device_(shape_, 16, positions),
        staging_(lists_ * stride_ * shape_.row_bytes()),
        ids_(lists_ * stride_),
        counts_(lists_, static_cast<std::uint32_t>(list_size)),
        rows_(lists_ * stride_),
        missed_(lists_ * stride_),
        missed_count_(1),
        seen_(shape_.kv_heads * positions),
        epoch_(1) {
    host_.fill_normal(4);
    device_.fill_normal(4);
    for (std::size_t b = 0; b < device_.blocks().size(); b += 2) device_.blocks()[b] = nullptr;
  }

  void select(std::uint64_t stream) {
    Rng rng(seed(), {stream});
    for (std::size_t list = 0; list < lists_; ++list) {
      std::set<std::uint32_t> chosen;
      while (chosen.size() < counts_[list]) {
        chosen.insert(static_cast<std::uint32_t>(rng.below(positions)));
      }
      std::copy(chosen.begin(), chosen.end(),
                ids_.begin() + static_cast<std::ptrdiff_t>(list * stride_));
    }
  }

  [[nodiscard]] ResolveRows request() {
    return {.shape = shape_,
            .scope = scope_,
            .ids = ids_.data(),
            .id_count = counts_.data(),
            .id_stride = stride_,
            .resident = device_.table(),
            .staging = staging_.data(),
            .rows = rows_.data(),
            .missed = missed_.data(),
            .missed_count = missed_count_.data(),
            .seen = seen_.data(),
            .seen_epoch = epoch_.data(),
            .seen_stride = positions};
  }

  void resolve() { run(request()); }

  [[nodiscard]] FetchRows fetch_request() {
    return {.shape = shape_,
            .missed = missed_.data(),
            .missed_count = missed_count_.data(),
            .source = host_.table()};
  }

  std::size_t fetch() { return run(fetch_request()); }

  /// Checks rows against what was selected; returns the distinct rows that were not resident.
  std::size_t expect_right_rows() {
    std::map<std::pair<std::size_t, std::uint32_t>, std::byte*> staged;
    for (std::size_t list = 0; list < lists_; ++list) {
      const std::size_t head = list * 2 / lists_;
      for (std::size_t i = 0; i < counts_[list]; ++i) {
        const std::uint32_t position = ids_[list * stride_ + i];
        std::byte* row = rows_[list * stride_ + i];
        if (std::byte* resident = device_.row(head, position)) {
          EXPECT_EQ(row, resident);
          continue;
        }
        EXPECT_EQ(std::memcmp(row, host_.row(head, position), shape_.row_bytes()), 0);
        const auto [place, first] = staged.insert({{head, position}, row});
        EXPECT_EQ(place->second, row) << "staged twice";
      }
    }
    return staged.size();
  }

  /// Checks that misses of a head come in the order of its lists.
  void expect_order() const {
    std::map<std::uint32_t, std::byte*> last;
    for (std::size_t i = 0; i < misses(); ++i) {
      std::byte*& before = last[missed_[i].head];
      EXPECT_LT(before, missed_[i].target);
      before = missed_[i].target;
    }
  }

  [[nodiscard]] std::uint32_t misses() const { return missed_count_[0]; }

  static constexpr std::size_t positions = 400;
  ListScope scope_;
  KvShape shape_;
  std::size_t lists_;
  std::size_t stride_;
  BlockStore host_;
  BlockStore device_;
  Guarded<std::byte> staging_;
  std::vector<std::uint32_t> ids_;
  std::vector<std::uint32_t> counts_;
  std::vector<std::byte*> rows_;
  std::vector<MissedRow> missed_;
  std::vector<std::uint32_t> missed_count_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint32_t> epoch_;
};

}  // namespace terrace::testing
