#include "sha256.hpp"

#include <openssl/evp.h>

namespace terrace::tiers {

Result<Digest> sha256(std::span<const std::byte> bytes) {
  Digest digest;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                 nullptr, EVP_sha256(), nullptr) != 1) {
    return fail(Errc::out_of_memory, "libcrypto could not compute a SHA-256 of {} bytes: retry",
                bytes.size());
  }
  return digest;
}

}  // namespace terrace::tiers
