#include "groups.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "../retention/soft_matching.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t rows_per_entry = 5;
constexpr std::size_t page_tokens = Groups::page_tokens;

/// Groups the tokens of pages, of one KV head.
class Matching {
 public:
  Matching(const BuildRequest& request, const GroupShape& groups, std::size_t head)
      : request_(request), groups_(groups), head_(head) {}

  /// Writes the groups of each page whose last token is among those of the request.
  void write() const {
    const std::size_t first = request_.index.first_token;
    const std::size_t end = (request_.tokens.end - first) / page_tokens;
    for (std::size_t page = (request_.tokens.begin - first) / page_tokens; page < end; ++page) {
      const std::vector<std::uint8_t> group_of = match(first + page * page_tokens);
      kernels::host::average_groups({.shape = request_.shape,
                                     .groups = groups_,
                                     .index = request_.index,
                                     .head = head_,
                                     .page = page,
                                     .rows = request_.rows,
                                     .group_of = group_of});
    }
  }

 private:
  /// Returns the group of each token of the page that begins at `first`.
  [[nodiscard]] std::vector<std::uint8_t> match(std::size_t first) const {
    std::vector<const std::byte*> rows(page_tokens);
    for (std::size_t i = 0; i < page_tokens; ++i) {
      rows[i] = kernels::row_address(request_.shape, request_.rows, head_, first + i);
    }
    const std::vector<std::uint32_t> which = fitting(rows);
    std::vector<std::uint32_t> positions(page_tokens);
    std::iota(positions.begin(), positions.end(), 0U);
    const std::vector<std::uint32_t> degrees(page_tokens, 1);
    const auto matched =
        match_softly(request_.shape, {.rows = rows, .positions = positions, .degrees = degrees},
                     which, groups_.groups, 0);
    std::vector<std::uint8_t> group_of(page_tokens, GroupShape::none);
    for (std::size_t group = 0; group < matched.size(); ++group) {
      for (const std::uint32_t token : matched[group]) {
        group_of[token] = static_cast<std::uint8_t>(group);
      }
    }
    return group_of;
  }

  /// Returns the tokens with rows finite and small enough for a group.
  [[nodiscard]] std::vector<std::uint32_t> fitting(std::span<const std::byte* const> rows) const {
    const KvShape& shape = request_.shape;
    std::vector<std::uint32_t> which;
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      if (kernels::host::fits_a_group(rows[i], shape.dtype, 2 * shape.head_dim)) {
        which.push_back(i);
      }
    }
    return which;
  }

  const BuildRequest& request_;
  const GroupShape& groups_;
  std::size_t head_;
};

}  // namespace

Status Groups::check(const EstimateOptions& options, std::string_view key) {
  const std::size_t tokens = options.group_tokens;
  if (tokens > 0 && page_tokens % tokens == 0) return {};
  return fail(Errc::invalid_argument, "{} {}: use a divisor of {}", key, tokens, page_tokens);
}

Groups::Groups(const EstimateOptions& options, std::size_t chunk_begin) noexcept
    : shape_{.page_tokens = page_tokens,
             .groups = page_tokens / options.group_tokens,
             .chunk_begin = align_up(chunk_begin, 4)},
      in_budget_(options.in_budget) {}

void Groups::write(const BuildRequest& request, std::size_t head) const {
  Matching(request, shape_, head).write();
}

std::size_t Groups::entries_of(const SelectRequest& request) const noexcept {
  const std::size_t all = shape_.count(request.candidates.size());
  return in_budget_ ? std::min(all, request.count.mean / rows_per_entry) : all;
}

RowCounts Groups::rows_within(const SelectRequest& request) const noexcept {
  RowCounts count = request.count;
  if (in_budget_) count.mean -= entries_of(request);
  return count;
}

GroupRests Groups::rests(const RestsRequest& request) const noexcept {
  const SelectRequest& selection = request.selection;
  return {.candidates = selection.candidates,
          .groups = shape_,
          .index = selection.index,
          .ids = selection.out.ids,
          .most = entries_of(selection),
          .means = request.means,
          .pseudo = selection.out.pseudo,
          .scratch = selection.scratch};
}

}  // namespace terrace::policies
