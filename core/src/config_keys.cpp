// The schema: every key there is, grouped by the part of the name before the dot.
#include <array>

#include "terrace/core/config.hpp"

namespace terrace {
namespace {

using enum ConfigKind;

constexpr double any_integer = 0x1p64;
constexpr double any_size = 0x1p63;

constexpr std::array keys{
    ConfigKey{.name = "retrieval.policy", .kind = text, .default_text = "pqcache",
              .meaning = "which tokens a step attends to, by the policy's name"},
    ConfigKey{.name = "retrieval.budget", .kind = budget, .default_text = "0.1",
              .meaning = "tokens attended per step: a share of the context, a number, or mass:SHARE"},
    ConfigKey{.name = "retrieval.when", .kind = choice, .default_text = "always",
              .words = "always|spilled",
              .meaning = "retrieve always, or only for sequences that left device memory"},
    ConfigKey{.name = "retrieval.sink_tokens", .kind = integer, .default_text = "32",
              .high = 1 << 20, .meaning = "first tokens of a sequence, always attended"},
    ConfigKey{.name = "retrieval.window_share", .kind = number, .default_text = "0.5", .high = 1,
              .meaning = "share of the budget that goes to the newest tokens"},

    ConfigKey{.name = "index.residency", .kind = choice, .default_text = "auto",
              .words = "auto|device|host", .meaning = "tier of the retrieval index"},

    ConfigKey{.name = "pq.subspaces", .kind = integer, .default_text = "2", .low = 1, .high = 64,
              .meaning = "parts a key is cut into for product quantization"},
    ConfigKey{.name = "pq.bits", .kind = integer, .default_text = "6", .low = 1, .high = 8,
              .meaning = "bits of one part's code: 2^bits centroids"},

    ConfigKey{.name = "planning.iterations", .kind = integer, .default_text = "10",
              .words = "auto", .low = 1, .high = 1000,
              .meaning = "k-means iterations; auto fits them under the prefill"},
    ConfigKey{.name = "planning.iterations_min", .kind = integer, .default_text = "3", .low = 1,
              .high = 1000, .meaning = "fewest iterations that auto may choose"},
    ConfigKey{.name = "planning.iterations_max", .kind = integer, .default_text = "100", .low = 1,
              .high = 1000, .meaning = "most iterations that auto may choose"},

    ConfigKey{.name = "cache.policy", .kind = text, .default_text = "lru",
              .meaning = "replacement policy of the device cache, by name; none for no cache"},
    ConfigKey{.name = "cache.granularity", .kind = choice, .default_text = "block",
              .words = "block|cluster", .meaning = "unit that is cached and evicted"},
    ConfigKey{.name = "cache.tokens", .kind = integer, .default_text = "auto", .words = "auto",
              .high = 0x1p32, .meaning = "capacity in tokens per layer, all KV heads"},
    ConfigKey{.name = "cache.admission", .kind = choice, .default_text = "refill",
              .words = "always|refill",
              .meaning = "admit a missed unit at once, or by a refill off the critical path"},

    ConfigKey{.name = "kv.dtype", .kind = choice, .default_text = "f16", .words = "f16|bf16|f32",
              .meaning = "element type of stored keys and values"},
    ConfigKey{.name = "kv.block_tokens", .kind = integer, .default_text = "32", .low = 1,
              .high = 1 << 16, .meaning = "consecutive positions in one block"},

    ConfigKey{.name = "placement", .kind = choice, .default_text = "offload",
              .words = "offload|resident_first",
              .meaning = "offload at prefill, or keep KV on the device while it fits"},
    ConfigKey{.name = "backend", .kind = choice, .default_text = "auto",
              .words = "auto|host|cuda|sim", .meaning = "device; auto takes the best there is"},

    ConfigKey{.name = "device.memory", .kind = size, .default_text = "unlimited",
              .words = "unlimited", .low = 1, .high = any_size,
              .meaning = "limit for KV, index, cache and staging on the device"},
    ConfigKey{.name = "host.memory", .kind = size, .default_text = "unlimited",
              .words = "unlimited", .low = 1, .high = any_size,
              .meaning = "limit for KV and index in host memory"},
    ConfigKey{.name = "host.huge_pages", .kind = choice, .default_text = "auto",
              .words = "auto|on|off", .meaning = "back host pools with huge pages"},
    ConfigKey{.name = "host.numa", .kind = choice, .default_text = "auto", .words = "auto|off",
              .meaning = "place host pools on the device's NUMA node"},

    ConfigKey{.name = "threads.device", .kind = integer, .default_text = "1", .low = 1,
              .high = 1024, .meaning = "threads that compute where the device is the host's CPU"},
    ConfigKey{.name = "threads.host", .kind = integer, .default_text = "1", .low = 1, .high = 1024,
              .meaning = "threads for clustering and copies on the host"},

    ConfigKey{.name = "link.bandwidth", .kind = bandwidth, .default_text = "unlimited",
              .words = "unlimited", .meaning = "speed of the imitated link of the host backend"},
    ConfigKey{.name = "link.latency", .kind = duration, .default_text = "0us",
              .meaning = "start-up time of each copy on the imitated link"},

    ConfigKey{.name = "prefetch.depth", .kind = integer, .default_text = "1", .high = 64,
              .meaning = "layers fetched ahead of the one that computes; 0 for none"},
    ConfigKey{.name = "deadline", .kind = duration, .default_text = "60s",
              .meaning = "longest wait for one transfer before it counts as failed"},
    ConfigKey{.name = "seed", .kind = integer, .default_text = "0", .high = any_integer,
              .meaning = "names every random stream of the run"},
    ConfigKey{.name = "profile", .kind = text, .default_text = "",
              .meaning = "machine profile, a file or a preset; empty to measure in memory"},
};

}  // namespace

std::span<const ConfigKey> config_keys() noexcept { return keys; }

}  // namespace terrace
