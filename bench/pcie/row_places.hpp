// The places of the rows that a step fetches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::bench {

/// Returns which `count` of `there` rows are moved: the first ones or, `scattered`, as a selection
/// names them: in ascending order, all over what there is, here and there some side by side.
std::vector<std::uint32_t> row_places(std::size_t there, std::size_t count, bool scattered);

}  // namespace terrace::bench
