#include "terrace/policies/retention.hpp"

namespace terrace::policies {
namespace {

/// Errors: invalid_argument naming the share.
Status check_share(const char* key, double share) {
  if (share >= 0 && share <= 1) return {};
  return fail(Errc::invalid_argument, "{} is {}; use 0 to 1", key, share);
}

}  // namespace

Status RetentionOptions::validate() const {
  TERRACE_TRY(check_share("retention.representatives", crush.representatives));
  TERRACE_TRY(check_share("retention.merge", merge.share));
  if (pool.width != 0 && pool.width % 2 == 0) {
    return fail(Errc::invalid_argument, "retention.pool is {}; use an odd number of positions",
                pool.width);
  }
  if (merge.chunk == 1) {
    return fail(Errc::invalid_argument,
                "chunks of one entry match nothing; use 0 (all) or 2 and more");
  }
  if (crush.block_tokens == 0) {
    return fail(Errc::invalid_argument,
                "retention.block_tokens is 0; use 1 (each token by itself) or more");
  }
  if (score_window == 0) {
    return fail(Errc::invalid_argument, "a score window of no query scores nothing; use 1 or more");
  }
  if (!(pyramid_slope >= 1)) {
    return fail(Errc::invalid_argument, "a pyramid's slope is {}; use 1 or more", pyramid_slope);
  }
  return {};
}

}  // namespace terrace::policies
