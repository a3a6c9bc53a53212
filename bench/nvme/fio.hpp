// fio, the disk benchmark that others measure by: the peer of our traffic.
#pragma once

#include <string>

#include "nvme/page_file.hpp"

namespace terrace::bench {

/// Returns fio's version. Errors: io_error: fio is not installed.
[[nodiscard]] Result<std::string> find_fio();

/// Has fio do the same by io_uring, on a file it may write to.
///
/// Errors   io_error: fio cannot be started, fails, or says nothing that can be read
[[nodiscard]] Result<TrafficFigures> run_fio(const PageFile& file, const Traffic& traffic,
                                             Duration time);

}  // namespace terrace::bench
