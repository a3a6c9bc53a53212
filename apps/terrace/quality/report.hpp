// The reports of `terrace bench quality`: rows for programs, a table and a page for people.
#pragma once

#include <string>

#include "document.hpp"
#include "quality/study.hpp"
#include "terrace/tuning/page.hpp"

namespace terrace::apps {

/// Returns one row for each cell: bits with full attention's as peer, and the cell's other figures
/// under "figures".
Json quality_rows(const QualityStudy& study);

/// Returns a table for each text, in which cells of the same budget stand together.
std::string quality_table(const QualityStudy& study);

/// Returns a page of HTML with drawings, the table's figures and the config that errs least.
std::string quality_page(const QualityStudy& study, const Machine& machine,
                         const tuning::PageOrigin& origin);

/// Returns the policy's name, and whether all its entries were counted.
std::string name_of(const QualityCell& cell);

/// Returns how a cell's entries came to fill its budget, where that was not by rows alone, and
/// where they do not; else nothing.
std::string remark(const QualityCell& cell);

/// Returns the digits of needles in bands of the context's depth, the shallowest first.
std::vector<NeedleScore> digits_by_depth(const PolicyFigures& figures, std::size_t bands);

/// Returns the share of right digits; no value where no needles were asked for.
std::optional<double> digits_right(const PolicyFigures& figures);

}  // namespace terrace::apps
