// Which tokens of a run belong to clusters that are marked: few, mostly.
#pragma once

#include <cstddef>
#include <cstdint>

namespace terrace::kernels::host {

inline constexpr std::size_t labels_at_once = 256;

/// Writes to `found` [count], in rising order, each i with marks[labels[i]] != 0, and returns how
/// many there are. count <= labels_at_once.
std::size_t find_marked(const std::uint32_t* labels, std::size_t count, const std::uint32_t* marks,
                        std::uint32_t* found) noexcept;

}  // namespace terrace::kernels::host
