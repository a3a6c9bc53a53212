// What arguments of ops must fulfil, checked on the host when an op is enqueued: what a pointer
// leads to and counts that lie behind one are not looked at. Parts that an op does without, as it
// does with no rows, may be missing. A backend asks for each op, so one that is not here does not
// compile.
//
//   TERRACE_TRY(validate(select));   // "exact_select: count must not be above id_stride"
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace {

// Errors: invalid_argument for a shape that KvShape refuses, a null pointer to what is read or
// written, a zero, sizes that do not divide as the op's comment says, more wanted than there is
// room for, positions above 2^32, or memory written that overlaps other memory the op is given, as
// far as the host knows how long both are. Behind tables of pointers nobody looks but store_rows,
// in the blocks it writes; so of fetch_rows nothing is compared, and of an index the codebooks
// alone.
[[nodiscard]] Status validate(const StoreRows& op);
[[nodiscard]] Status validate(const PqSelect& op);
[[nodiscard]] Status validate(const ExactSelect& op);
[[nodiscard]] Status validate(const MapQueries& op);
[[nodiscard]] Status validate(const PageSelect& op);
[[nodiscard]] Status validate(const ClusterSelect& op);
[[nodiscard]] Status validate(const ResolveRows& op);
[[nodiscard]] Status validate(const FetchRows& op);
[[nodiscard]] Status validate(const CacheRows& op);
[[nodiscard]] Status validate(const DecodeAttention& op);

}  // namespace terrace
