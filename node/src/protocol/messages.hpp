// The messages between a client and the daemon: docs/daemon-protocol.md says what they mean.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/tiers/chunk_keeper.hpp"

namespace terrace::node::wire {

inline constexpr std::uint16_t version_first = 1;  ///< oldest and newest that this code speaks
inline constexpr std::uint16_t version_last = 1;
inline constexpr std::uint64_t magic = 0x6465636172726574;  ///< "terraced"
inline constexpr std::size_t header_bytes = 16;
inline constexpr std::size_t body_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t salt_bytes_max = 1024;
inline constexpr std::size_t name_bytes_max = 64;
inline constexpr std::size_t find_keys_max = 8192;
inline constexpr std::size_t read_parts_max = 4096;
inline constexpr std::size_t descriptors_max = 64;  ///< that come with one message
inline constexpr std::size_t part_alignment = 64;   ///< of parts in the memory of a reservation

enum class Kind : std::uint8_t {
  hello = 1,
  find,
  read,
  renew,
  release,
  reserve,
  commit,
  cancel,
  pin,
  unpin,
  stats,
  lease,
  let_go,
  note_mass,
};
inline constexpr std::uint8_t reply_bit = 0x80;

/// Begins each message. `status`: of a reply, 0 or 1 + Errc; then the body is the error's text.
struct Header {
  std::uint32_t body_bytes = 0;
  std::uint8_t kind = 0;
  std::uint8_t reserved = 0;
  std::uint16_t status = 0;
  std::uint64_t request = 0;
};

struct Hello {
  std::uint64_t magic = wire::magic;
  std::uint16_t version_first = wire::version_first;
  std::uint16_t version_last = wire::version_last;
  std::string name = {};
  std::string salt = {};
};
struct HelloReply {
  std::uint16_t version = wire::version_last;
  std::uint64_t instance = 0;
  std::uint64_t lease_ns = 0;
  std::uint32_t leases_max = 0;
  std::uint32_t reservations_max = 0;
  std::uint64_t client_bytes = 0;
};

struct SizedPart {
  tiers::PartName name = {};
  std::uint64_t bytes = 0;
  bool operator==(const SizedPart&) const = default;
};
struct Find {
  tiers::Digest root = {};
  std::uint64_t tokens = 0;
  std::vector<tiers::ChunkKey> keys = {};
};
struct PartList {
  std::vector<SizedPart> parts = {};
};
struct FoundChunk {
  std::uint32_t tokens = 0;
  std::uint32_t list = 0;  ///< number of its list of parts
};
struct FindReply {
  tiers::LookUpOutcome outcome = {};
  std::uint64_t lease = 0;  ///< 0 = nothing is leased
  std::vector<PartList> lists = {};
  std::vector<FoundChunk> chunks = {};
};

struct Lease {
  std::vector<tiers::ChunkKey> keys = {};
  std::uint8_t brings_last = 0;  ///< 1 = from servers, if none of the last chunks is in the file
};
struct LeaseReply {
  std::uint64_t lease = 0;                  ///< 0 = nothing is leased
  std::vector<std::uint32_t> numbers = {};  ///< of the keys of the chunks
  std::vector<PartList> lists = {};
  std::vector<FoundChunk> chunks = {};
};

struct WantedPart {
  std::uint32_t chunk = 0;  ///< its number in the reply to find
  tiers::PartName name = {};
};
struct Read {
  std::uint64_t lease = 0;
  std::vector<WantedPart> parts = {};
};
struct Segment {
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
};
struct PlacedPart {
  std::uint16_t status = 0;  ///< 0 or 1 + Errc
  std::uint32_t segment = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
struct ReadReply {
  std::vector<std::uint32_t> retired = {};
  std::vector<Segment> segments = {};  ///< new ones, a descriptor each
  std::vector<PlacedPart> parts = {};
};

struct LeaseNumber {  ///< renew, release, let_go
  std::uint64_t lease = 0;
};
inline constexpr std::uint64_t no_lease = 0;
inline constexpr std::uint64_t new_lease = ~std::uint64_t{0};

/// A sample of the attention mass of a client's step: the share of full attention's weight that lay
/// on what was attended to.
struct MassSample {
  std::uint64_t millionths = 0;
};
inline constexpr std::uint64_t mass_millionths_max = 1'000'000;

struct Reserve {
  tiers::Digest root = {};
  tiers::ChunkKey key = {};
  std::uint32_t tokens = 0;
  std::uint64_t lease = no_lease;  ///< that the chunk is added to: no_lease, new_lease or a number
  std::vector<SizedPart> parts = {};
};
struct ReserveReply {
  tiers::Published state = tiers::Published::written;  ///< written: reserved, with a descriptor
  std::uint64_t reservation = 0;
  std::uint64_t bytes = 0;  ///< of the memory
  std::uint64_t lease = no_lease;
};
struct ReservationNumber {  ///< commit, cancel
  std::uint64_t reservation = 0;
};
struct CommitReply {
  tiers::Published state = {};
  std::uint64_t lease = no_lease;
};
struct KeyMessage {  ///< pin, unpin
  tiers::ChunkKey key = {};
};
struct Counter {
  std::string name = {};
  std::uint64_t value = 0;
};
struct StatsReply {
  std::vector<Counter> counters = {};
};

}  // namespace terrace::node::wire
