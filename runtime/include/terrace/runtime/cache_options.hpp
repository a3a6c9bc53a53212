// The options of a resident cache, and making one: the same in a runtime and in the replay of a
// trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/policies/admission.hpp"
#include "terrace/policies/replacement.hpp"
#include "terrace/policies/resident_cache.hpp"

namespace terrace {

/// The unit of a cache: a block of tokens, a cluster of one KV head, or a row, which the device
/// keeps by itself.
enum class CacheGranularity : std::uint8_t { block, cluster, row };

std::string_view to_string(CacheGranularity granularity) noexcept;
/// Returns the granularity of that name, or nothing.
std::optional<CacheGranularity> find_cache_granularity(std::string_view name) noexcept;
/// Returns the unit that a config means where it names none: rows, or blocks where the replacement
/// policy chooses among units. See docs/decisions/0139.
CacheGranularity usual_granularity(std::string_view policy) noexcept;

struct CacheOptions {
  std::string policy = "lru";  ///< "none" for no cache
  std::string admission = "refill";
  CacheGranularity granularity = CacheGranularity::block;
  /// Capacity per layer, all KV heads, for all sequences of the runtime together; 0 = for each
  /// twice the tokens it selects.
  std::size_t tokens = 0;
  std::size_t sequence_tokens = 0;  ///< quota of one sequence; 0 = none
  policies::ReplacementOptions replacement = {};
  policies::AdmissionOptions refill = {};

  [[nodiscard]] bool none() const noexcept { return policy == "none"; }
  bool operator==(const CacheOptions&) const = default;
};

/// Returns the rows that a slot of cached clusters holds: some, of as many tokens of each KV head,
/// so that a small cluster wastes little and a large one has few slots.
std::size_t cluster_slot_rows(const KvShape& shape, std::size_t block_tokens) noexcept;

/// Returns the tokens, of all KV heads, that a slot holds: of a block, of some rows of clusters, or
/// of as many rows as a block has, since these come and go together.
std::size_t cache_slot_tokens(CacheGranularity granularity, const KvShape& shape,
                              std::size_t block_tokens) noexcept;

/// Errors: unsupported: a cache of rows with a policy that the device does not have.
Status check_cache(const CacheOptions& options);

/// The sequences that share a cache, as far as capacity depends on them.
struct CacheSharing {
  std::size_t slot_tokens = 1;
  std::size_t selected_tokens = 0;  ///< by each of the sharers
  std::size_t sharers = 1;
};

/// Returns the slots that each sharer has in each layer: equal shares, up to the quota. See
/// docs/decisions/0012.
std::size_t cache_slots(const CacheOptions& options, const CacheSharing& sharing) noexcept;

/// Blocks of a layer for which device memory is taken at once: few, so that what is counted is
/// what is used. Near the memory's end it is taken for fewer.
inline constexpr std::size_t slab_blocks = 16;

/// Says why a cache of a given size has no slot at all, and what to give instead; nothing where it
/// has one, or no size is given.
std::optional<std::string> why_no_slot(const CacheOptions& options, const CacheSharing& sharing);

/// Makes the cache of one layer of one sequence, for unit keys below `key_count`.
/// Errors: invalid_argument naming the setting; those of the policies.
Result<policies::ResidentCache> make_resident_cache(const CacheOptions& options, std::size_t slots,
                                                    std::size_t key_count);

}  // namespace terrace
