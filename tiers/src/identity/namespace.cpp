#include "terrace/tiers/namespace.hpp"

#include <fmt/core.h>

#include "field_encoding.hpp"
#include "sha256.hpp"

namespace terrace::tiers {
namespace {

Status check_slice(std::string_view name, const ModelSlice& slice) {
  if (slice.count == 0 || slice.begin > slice.whole || slice.count > slice.whole - slice.begin) {
    return fail(Errc::invalid_argument, "{}: {} from {} on are no part of the model's {}", name,
                slice.count, slice.begin, slice.whole);
  }
  return {};
}

void add_slice(FieldEncoding& fields, const ModelSlice& slice) {
  fields.add(slice.whole).add(slice.begin).add(slice.count);
}

std::string describe_slice(const ModelSlice& slice) {
  return fmt::format("{}-{} of {}", slice.begin, slice.begin + slice.count - 1, slice.whole);
}

}  // namespace

Status Namespace::validate() const {
  if (model_fingerprint.empty()) {
    return fail(Errc::invalid_argument, "the namespace has no fingerprint of the model's weights");
  }
  TERRACE_TRY(check_slice("layers", layers));
  TERRACE_TRY(check_slice("KV heads", kv_heads));
  if (head_dim == 0 || block_tokens == 0) {
    return fail(Errc::invalid_argument,
                "the namespace has a head_dim of {} and blocks of {} tokens", head_dim,
                block_tokens);
  }
  if (chunk_tokens == 0 || chunk_tokens % block_tokens != 0) {
    return fail(Errc::invalid_argument,
                "chunks of {} tokens are no whole blocks of {}: choose a multiple", chunk_tokens,
                block_tokens);
  }
  return {};
}

Result<Digest> Namespace::digest() const {
  TERRACE_TRY(validate());
  FieldEncoding fields;
  fields.add("terrace namespace 1").add(model_fingerprint).add(adapter).add(to_string(kv_dtype));
  add_slice(fields, layers);
  add_slice(fields, kv_heads);
  fields.add(head_dim).add(rope).add(layout_version).add(block_tokens).add(chunk_tokens);
  fields.add(salt.secret());
  return sha256(fields.bytes());
}

std::string Namespace::describe() const {
  return fmt::format(
      "model {}, adapter {}, {}, layers {}, KV heads {} of {} elements, rope {}, layout {}, "
      "chunks of {} tokens, blocks of {}, {}",
      model_fingerprint, adapter.empty() ? "none" : adapter, to_string(kv_dtype),
      describe_slice(layers), describe_slice(kv_heads), head_dim, rope.empty() ? "none" : rope,
      layout_version, chunk_tokens, block_tokens, salt.is_empty() ? "no salt" : "salted");
}

Result<Digest> digest_of(const TenantSalt& salt) {
  return sha256(std::as_bytes(std::span(salt.secret())));
}

}  // namespace terrace::tiers
