#include "terrace/tiers/chunk_chain.hpp"

#include "field_encoding.hpp"
#include "little_endian.hpp"
#include "sha256.hpp"

namespace terrace::tiers {

ChunkChain::ChunkChain(const ChunkChainOptions& options)
    : options_(options),
      unit_bytes_(options.hashes.bytes == 0 ? sizeof(std::uint32_t) : options.hashes.bytes),
      unit_tokens_(options.hashes.bytes == 0 ? 1 : options.hashes.tokens) {}

Result<ChunkChain> ChunkChain::create(const ChunkChainOptions& options) {
  const CallerHashes& hashes = options.hashes;
  if (options.chunk_tokens == 0 || options.chunk_tokens > chunk_tokens_max) {
    return fail(Errc::invalid_argument, "chunks of {} tokens; choose 1 to {}", options.chunk_tokens,
                chunk_tokens_max);
  }
  if (hashes.bytes > hash_bytes_max) {
    return fail(Errc::invalid_argument, "hashes of {} bytes; at most {}", hashes.bytes,
                hash_bytes_max);
  }
  if (hashes.bytes != 0 && (hashes.tokens == 0 || options.chunk_tokens % hashes.tokens != 0)) {
    return fail(Errc::invalid_argument, "chunks of {} tokens are no whole hashes of {} tokens",
                options.chunk_tokens, hashes.tokens);
  }
  return ChunkChain(options);
}

std::size_t ChunkChain::chunk_bytes() const noexcept {
  return options_.chunk_tokens / unit_tokens_ * unit_bytes_;
}

std::size_t ChunkChain::tokens() const noexcept {
  return units_.size() / unit_bytes_ * unit_tokens_;
}

Result<std::span<const ChunkKey>> ChunkChain::append(std::span<const TokenId> tokens) {
  if (options_.hashes.bytes != 0) {
    return fail(Errc::invalid_argument,
                "the chain is over hashes of the caller's, not over tokens");
  }
  std::vector<std::byte> units;
  units.reserve(tokens.size() * unit_bytes_);
  for (const TokenId token : tokens) {
    append_little_endian(units, static_cast<std::uint32_t>(token));
  }
  return extend(units);
}

Result<std::span<const ChunkKey>> ChunkChain::append_hashes(std::span<const std::byte> hashes) {
  if (options_.hashes.bytes == 0) {
    return fail(Errc::invalid_argument,
                "the chain is over tokens, not over hashes of the caller's");
  }
  if (hashes.size() % unit_bytes_ != 0) {
    return fail(Errc::invalid_argument, "{} bytes are no whole hashes of {}", hashes.size(),
                unit_bytes_);
  }
  return extend(hashes);
}

Result<std::span<const ChunkKey>> ChunkChain::extend(std::span<const std::byte> units) {
  const std::size_t bytes_before = units_.size();
  const std::size_t chunks_before = links_.size();
  append_bytes(units_, units);
  while (units_.size() - links_.size() * chunk_bytes() >= chunk_bytes()) {
    const auto of_chunk = std::span(units_).subspan(links_.size() * chunk_bytes(), chunk_bytes());
    const auto link = link_after(links_.empty() ? options_.root : links_.back(), of_chunk);
    if (!link) {
      keep_first(chunks_before, bytes_before);
      return tl::unexpected(link.error());
    }
    links_.push_back(*link);
    keys_.push_back(key_of(*link));
  }
  return std::span<const ChunkKey>(keys_).subspan(chunks_before);
}

Result<ChunkKey> ChunkChain::tail_key() const {
  const auto tail = std::span(units_).subspan(links_.size() * chunk_bytes());
  if (tail.empty()) return fail(Errc::invalid_argument, "a chain without a tail");
  TERRACE_ASSIGN(const Digest link,
                 link_after(links_.empty() ? options_.root : links_.back(), tail));
  return key_of(link);
}

Result<Digest> ChunkChain::link_after(const Digest& link, std::span<const std::byte> units) const {
  FieldEncoding fields;
  fields.add("terrace chunk 1").add(options_.hashes.bytes == 0 ? "tokens" : "hashes");
  fields.add(std::uint64_t{unit_bytes_}).add(std::uint64_t{unit_tokens_}).add(link).add(units);
  return sha256(fields.bytes());
}

void ChunkChain::keep_first(std::size_t chunks, std::size_t bytes) {
  units_.resize(bytes);
  links_.resize(chunks);
  keys_.resize(chunks);
}

Status ChunkChain::check_cut(std::size_t tokens) const {
  if (tokens > this->tokens() || tokens % unit_tokens_ != 0) {
    return fail(Errc::invalid_argument,
                "a chain of {} tokens, in steps of {}, cannot be cut after {}", this->tokens(),
                unit_tokens_, tokens);
  }
  return {};
}

Status ChunkChain::truncate(std::size_t tokens) {
  TERRACE_TRY(check_cut(tokens));
  keep_first(tokens / options_.chunk_tokens, tokens / unit_tokens_ * unit_bytes_);
  return {};
}

Result<ChunkChain> ChunkChain::fork(std::size_t tokens) const {
  TERRACE_TRY(check_cut(tokens));
  const std::size_t chunks = tokens / options_.chunk_tokens;
  const std::size_t bytes = tokens / unit_tokens_ * unit_bytes_;
  ChunkChain forked(options_);
  forked.units_.assign(units_.begin(), units_.begin() + static_cast<std::ptrdiff_t>(bytes));
  forked.links_.assign(links_.begin(), links_.begin() + static_cast<std::ptrdiff_t>(chunks));
  forked.keys_.assign(keys_.begin(), keys_.begin() + static_cast<std::ptrdiff_t>(chunks));
  return forked;
}

}  // namespace terrace::tiers
