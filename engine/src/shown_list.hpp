// Names for a line that people read: the first of them, and how many more there are.
#pragma once

#include <string>
#include <vector>

namespace terrace::engine {

std::string shown_list(const std::vector<std::string>& names);

}  // namespace terrace::engine
