// The errors that all stores word alike.
#pragma once

#include "terrace/core/store.hpp"

namespace terrace::offload {

inline tl::unexpected<Error> unknown_batch(std::string_view store, StoreTicket ticket) {
  return fail(Errc::invalid_argument, "store {}: no batch has number {}", store, ticket.number);
}

inline tl::unexpected<Error> unknown_page(std::string_view store, PageKey key) {
  return fail(Errc::invalid_argument, "store {}: no page {:016x}{:016x}", store, key.high, key.low);
}

inline tl::unexpected<Error> other_size(std::string_view store, const PageRequest& request,
                                        std::size_t bytes) {
  return fail(Errc::invalid_argument, "store {}: page {:016x}{:016x} has {} bytes, not {}", store,
              request.key.high, request.key.low, bytes, request.bytes);
}

inline tl::unexpected<Error> corrupt_page(std::string_view store, PageKey key) {
  return fail(Errc::corrupt, "store {}: page {:016x}{:016x} is not what was written", store,
              key.high, key.low);
}

}  // namespace terrace::offload
