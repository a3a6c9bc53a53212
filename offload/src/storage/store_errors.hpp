// The errors that all stores word alike.
#pragma once

#include "terrace/core/store.hpp"

namespace terrace::offload {

inline tl::unexpected<Error> unknown_page(std::string_view store, PageKey key) {
  return fail(Errc::invalid_argument, "store {}: no page {:016x}{:016x}", store, key.high, key.low);
}

inline Status other_size(std::string_view store, const PageRequest& request, std::size_t bytes) {
  return fail(Errc::invalid_argument, "store {}: page {:016x}{:016x} has {} bytes, not {}", store,
              request.key.high, request.key.low, bytes, request.bytes);
}

/// Refuses a get of bytes that a page does not have.
inline Status check_range(std::string_view store, const PageRequest& request, std::size_t bytes) {
  if (request.verb == PageVerb::get) {
    return request.bytes == bytes ? Status{} : other_size(store, request, bytes);
  }
  if (request.bytes > 0 && request.offset <= bytes && request.bytes <= bytes - request.offset) {
    return {};
  }
  return fail(Errc::invalid_argument, "store {}: page {:016x}{:016x} has {} bytes, not {} at {}",
              store, request.key.high, request.key.low, bytes, request.bytes, request.offset);
}

/// Refuses a request whose bytes have no memory.
inline Status check_memory(std::string_view store, const PageRequest& request) {
  const bool moves = request.verb == PageVerb::get || request.verb == PageVerb::get_part ||
                     request.verb == PageVerb::put;
  if (!moves || request.data != nullptr || request.bytes == 0) return {};
  return fail(Errc::invalid_argument,
              "store {}: data of page {:016x}{:016x} is null, and its bytes are {}", store,
              request.key.high, request.key.low, request.bytes);
}

/// Refuses a batch that is no array of requests.
inline Status check_batch(std::string_view store, std::span<const PageRequest> batch) {
  if (batch.data() != nullptr || batch.empty()) return {};
  return fail(Errc::invalid_argument, "store {}: the batch is null, and has {} requests", store,
              batch.size());
}

inline tl::unexpected<Error> corrupt_page(std::string_view store, PageKey key) {
  return fail(Errc::corrupt, "store {}: page {:016x}{:016x} is not what was written", store,
              key.high, key.low);
}

inline tl::unexpected<Error> corrupt_part(std::string_view store, const PageRequest& request) {
  return fail(Errc::corrupt,
              "store {}: page {:016x}{:016x} is not what was written at {} bytes from {} on", store,
              request.key.high, request.key.low, request.bytes, request.offset);
}

}  // namespace terrace::offload
