// The page of `terrace bench pcie`: rates over sizes, drawn, and all rows in figures.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/row.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::bench {

/// Returns a page of HTML that needs nothing else.
std::string pcie_page(std::span<const Row> rows, std::string_view machine,
                      const tuning::PageOrigin& origin);

}  // namespace terrace::bench
