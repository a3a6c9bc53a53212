#include <vector>

#include "host/sign_codes.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::kernels::reference {

double sign_score(const SignSelect& op, std::size_t query_head, std::size_t position) {
  const KvShape& shape = op.common.shape;
  const std::size_t dims = shape.head_dim;
  const GroupShape& groups = op.signs.groups;
  const float* const query = op.common.query + query_head * dims;
  const std::size_t number = position - op.index.first_token;
  const std::size_t token = number % groups.page_tokens;
  const host::SignPlace page(shape, op.signs, op.index, query_head / shape.group(),
                             number / groups.page_tokens);
  double sum = 0;
  const std::size_t label = page.groups().labels()[token];
  for (std::size_t i = 0; label != GroupShape::none && i < dims; ++i) {
    sum += double{query[i]} *
           double{load_f32(page.groups().means() + label * shape.row_bytes(), shape.dtype, i)};
  }
  std::vector<float> numbers(dims);
  const double unit = double{round_query(query, dims, numbers.data(), sign_query_max).unit};
  const std::size_t half = groups.page_tokens / 2;
  double product = 0;
  for (std::size_t i = 0; i < dims; ++i) {
    const unsigned byte = page.signs()[i / 4 * half + token % half];
    const bool positive = (byte >> (token / half * 4 + i % 4) & 1U) != 0;
    product += positive ? double{numbers[i]} : -double{numbers[i]};
  }
  return sum + double{bf16_to_f32(page.factors()[token])} * unit * product;
}

}  // namespace terrace::kernels::reference
