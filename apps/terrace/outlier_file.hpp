// A file of outlier heads: `terrace calibrate --write` writes it, retention.outlier_heads names it.
#pragma once

#include <memory>
#include <string>

#include "terrace/core/config.hpp"
#include "terrace/core/result.hpp"
#include "terrace/policies/outlier_heads.hpp"

namespace terrace::apps {

using SharedOutliers = std::shared_ptr<const policies::OutlierHeads>;

/// Returns the content of a file that names the KV heads with the largest shares, `part` of all.
std::string outlier_file(const policies::HeadShares& shares, const KvShape& shape, double part);

/// Reads the file that retention.outlier_heads names; null if the key names no file.
///
/// Errors   io_error: cannot be read; invalid_argument: another kind of file, of a model of another
///          size, a head that the model lacks, a share that is not between 0 and 1. Each error
///          names the key, the file and the fault
/// Tests    tests/apps/outlier_file_test.cpp
Result<SharedOutliers> read_outlier_heads(const Config& config, const KvShape& shape);

}  // namespace terrace::apps
