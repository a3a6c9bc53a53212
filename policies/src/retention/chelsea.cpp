// Chelsea (CentroidKV): nothing is dropped, all of the middle is merged into as many entries as may
// stay.
//
// Source: arXiv 2506.11418. The bias ln(degree) is decisive: without it errors are twice as large.
#include "keep_best.hpp"
#include "rows.hpp"

namespace terrace::policies {

MadeRetentionPolicy make_chelsea(const RetentionOptions& options) {
  RetentionOptions merging = options;
  merging.merge.share = 1;
  return keep_best("chelsea", recency(), merging);
}

}  // namespace terrace::policies
