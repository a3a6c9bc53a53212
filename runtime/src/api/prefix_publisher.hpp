// A sequence's rows and indexes become a prefix that other sequences find.
#pragma once

#include "sequence_state.hpp"
#include "terrace/runtime/prefix.hpp"

namespace terrace {

/// Writes the rows of whole chunks that the store lacks. The sequence must be idle.
///
/// Errors   unsupported: the runtime keeps no prefixes; invalid_argument: not idle, or more tokens
///          than the sequence has; those of the store, where chunks before stay published
Result<PublishReport> publish_rows(SequenceState& state, const PrefixQuery& query);

/// Writes the indexes of a sequence, which ends where a published prefix of the query does, and
/// counts them in `report`. Returns whether the store has them: another one may be writing them.
///
/// Errors   as publish_rows(), those of building
Result<bool> publish_indexes(SequenceState& state, const PrefixQuery& query, PublishReport& report);

}  // namespace terrace
