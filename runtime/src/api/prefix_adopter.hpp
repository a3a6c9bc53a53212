// A sequence that begins with a prefix which the store has.
#pragma once

#include "prefix/prefix_library.hpp"
#include "sequence_state.hpp"
#include "terrace/runtime/prefix.hpp"

namespace terrace {

/// Has an empty sequence begin with the longest prefix of a query that the store has whole: with
/// its rows, which stay in the store until they are needed, and its indexes. A sequence for which
/// nothing is found stays empty.
///
/// Errors   out_of_memory, and those of the store. The sequence is of no use then
Status adopt_prefix(SequenceState& state, PrefixLibrary& library, const PrefixQuery& query);

}  // namespace terrace
