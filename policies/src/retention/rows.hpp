// The maker that each policy's file gives to the table.
#pragma once

#include <memory>
#include <string_view>

#include "importance.hpp"
#include "terrace/core/result.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace::policies {

using MadeRetentionPolicy = Result<std::unique_ptr<RetentionPolicy>>;

MadeRetentionPolicy make_recent(const RetentionOptions& options);
MadeRetentionPolicy make_h2o(const RetentionOptions& options);
MadeRetentionPolicy make_snapkv(const RetentionOptions& options);
MadeRetentionPolicy make_pyramidkv(const RetentionOptions& options);
MadeRetentionPolicy make_kvcrush(const RetentionOptions& options);
MadeRetentionPolicy make_chelsea(const RetentionOptions& options);
MadeRetentionPolicy make_smartkv(const RetentionOptions& options);
MadeRetentionPolicy make_cam(const RetentionOptions& options);

/// Makes the policy that keeps what `importance` puts first.
[[nodiscard]] MadeRetentionPolicy keep_best(std::string_view name,
                                            std::unique_ptr<Importance> importance,
                                            const RetentionOptions& options);

}  // namespace terrace::policies
