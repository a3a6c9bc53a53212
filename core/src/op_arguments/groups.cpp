#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

Status validate(const SignSelect& op) {
  constexpr std::string_view name = "sign_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const SignShape& signs = op.signs;
  TERRACE_TRY(require_groups(name, signs.groups, op.index));
  TERRACE_TRY(require(
      name, {{signs.groups.page_tokens % 64 == 0, "groups.page_tokens must be a multiple of 64"},
             {signs.chunk_begin % 4 == 0, "signs.chunk_begin must be a multiple of 4"}}));
  const SelectionViews views(
      op.common, op.common.shape.kv_heads,
      selection_scratch_floats(op.common.shape, op.common.candidates.size()));
  return require_apart(name, views);
}

}  // namespace terrace
