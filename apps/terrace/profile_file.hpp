// Writing a section of a machine profile that other commands write to as well.
#pragma once

#include <string>

#include "machine.hpp"
#include "terrace/core/clock.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// Returns the profile in a file, or a new one where there is no such file or an empty one, as of
/// today and of this machine; the figures of another CPU are left out.
/// Errors: those of a file that is no profile: the file must not be lost.
Result<MachineProfile> profile_to_extend(const std::string& file, const Machine& machine);

/// Reads the profile of a file, lets `put` change it and replaces the file under a lock, so that no
/// section is lost when two commands write. Measure before the call: other commands wait for the
/// lock.
///
/// Order    the lock is on the file's folder, and advisory; on a file system without locks two
///          commands that end at the same time may lose a section
/// Errors   as profile_to_extend(); io_error: the file cannot be written; not_ready: another
///          command has held the lock for longer than `patience`
Status extend_profile(const std::string& file, const Machine& machine, Duration patience,
                      FunctionRef<void(MachineProfile&)> put);

}  // namespace terrace::apps
