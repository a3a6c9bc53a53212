// Conditions that arguments of ops must fulfil, checked on the host when an op is enqueued: memory
// that a pointer leads to, and counts that lie there, are not looked at. Parts that an op does
// without, as it does with no rows, may be missing. A backend checks each op here, so an op without
// a check does not compile.
//
//   TERRACE_TRY(validate(select));   // "exact_select: count must not be above id_stride"
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "terrace/core/ops.hpp"

namespace terrace {

// Errors: invalid_argument for a shape that KvShape refuses, a null pointer to what is read or
// written, a zero, sizes that do not divide as the op's comment says, more wanted than there is
// room for, positions above 2^32, numbers in bytes off their alignment, or memory written that
// overlaps other memory the op is given, as far as the host knows how long both are. Only
// store_rows checks the blocks that a pointer table points to. So fetch_rows is not checked for
// overlaps, and of an index only the fixed part is.
[[nodiscard]] Status validate(const StoreRows& op);
[[nodiscard]] Status validate(const PqSelect& op);
[[nodiscard]] Status validate(const ExactSelect& op);
[[nodiscard]] Status validate(const ChannelSelect& op);
[[nodiscard]] Status validate(const MapQueries& op);
[[nodiscard]] Status validate(const ConvertQueries& op);
[[nodiscard]] Status validate(const PageSelect& op);
[[nodiscard]] Status validate(const ClusterSelect& op);
[[nodiscard]] Status validate(const RefineSelect& op);
[[nodiscard]] Status validate(const SignSelect& op);
[[nodiscard]] Status validate(const ResolveRows& op);
[[nodiscard]] Status validate(const FetchRows& op);
[[nodiscard]] Status validate(const CacheRows& op);
[[nodiscard]] Status validate(const DecodeAttention& op);
[[nodiscard]] Status validate(const TileAttention& op);
[[nodiscard]] Status validate(const TileWeights& op);

/// Returns an error of a call of a batch, with the call's place named before it.
[[nodiscard]] Error error_of_call(const Error& error, std::size_t call, std::size_t calls) noexcept;

/// Returns what two calls must have in common to be of one batch, and have not; empty if nothing.
template <typename Arguments>
[[nodiscard]] std::string_view difference(const Arguments& call, const Arguments& other) noexcept {
  if constexpr (requires { call.common; }) {
    if (!(call.common.shape == other.common.shape)) return "shape";
  } else if constexpr (requires { call.tile; }) {
    if (!(call.tile.shape == other.tile.shape)) return "shape";
  } else {
    if (!(call.shape == other.shape)) return "shape";
  }
  if constexpr (requires { call.scope; }) {
    if (call.scope != other.scope) return "scope";
  }
  if constexpr (requires { call.pq; }) {
    if (!(call.pq == other.pq)) return "pq";
  }
  if constexpr (requires { call.channels; }) {
    if (!(call.channels == other.channels)) return "channels";
  }
  if constexpr (requires { call.signs; }) {
    if (!(call.signs == other.signs)) return "signs";
  }
  if constexpr (requires { call.pages; }) {
    if (!(call.pages == other.pages)) return "pages";
  }
  if constexpr (requires { call.clusters; }) {
    if (!(call.clusters == other.clusters)) return "clusters";
  }
  if constexpr (requires { call.codes; }) {
    if (!(call.codes == other.codes)) return "codes";
  }
  return {};
}

/// Checks each call of a batch, and that they are of one model. No check compares the memory that
/// different calls write: it would take longer than the calls.
///
/// Errors   as of one call; of a batch of several the message begins with which call it is
template <typename Arguments>
[[nodiscard]] Status validate(std::span<const Arguments> batch) {
  if (batch.size() == 1) return validate(batch.front());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Status right = validate(batch[i]);
    if (const auto other = difference(batch[i], batch.front()); right && !other.empty()) {
      right = fail(Errc::invalid_argument, "{} must be that of call 0", other);
    }
    if (!right) return tl::unexpected(error_of_call(right.error(), i, batch.size()));
  }
  return {};
}

}  // namespace terrace
