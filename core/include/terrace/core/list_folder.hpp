// Listing a folder.
#pragma once

#include <filesystem>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns the paths of all that lies in a folder, the folder's own before each name, in the order
/// of their names; of folders within it the paths alone.
///
/// The standard library's iterator ends the program where no memory is left for the next name; here
/// std::bad_alloc is thrown as everywhere.
///
/// Errors   io_error naming the folder and the system's reason
[[nodiscard]] Result<std::vector<std::filesystem::path>> list_folder(
    const std::filesystem::path& folder);

}  // namespace terrace
