#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "contract/fuzz.hpp"
#include "identity/field_encoding.hpp"
#include "little_endian.hpp"
#include "terrace/core/rng.hpp"
#include "tiers/namespaces.hpp"

namespace terrace::tiers {
namespace {

using Fields = std::vector<std::string>;

std::vector<std::byte> encoded(const Fields& fields) {
  FieldEncoding encoding;
  for (const std::string& field : fields) encoding.add(field);
  return {encoding.bytes().begin(), encoding.bytes().end()};
}

/// Reads a list of fields back. An encoding that can be read is that of one list alone.
Fields decoded(std::span<const std::byte> bytes) {
  Fields fields;
  while (!bytes.empty()) {
    const auto size = take_little_endian<std::uint64_t>(bytes);
    fields.emplace_back(reinterpret_cast<const char*>(bytes.data()), size);
    bytes = bytes.subspan(size);
  }
  return fields;
}

std::string hex(const Result<Digest>& digest) {
  return digest ? to_string(*digest) : std::string(digest.error().message());
}

TEST(FieldEncoding, CanBeReadBackSoThatNoTwoListsAreEncodedAlike) {
  const std::uint64_t seed = fuzz_seed(118);
  Rng rng(seed);
  for (std::uint64_t step = 0; step < fuzz_steps() / 10; ++step) {
    SCOPED_TRACE(replay(seed, step));
    Fields fields(rng.below(6));
    for (std::string& field : fields) {
      field.resize(rng.below(20));
      // Bytes of lengths are frequent, so that a field may look like others.
      for (char& byte : field) byte = static_cast<char>(rng.below(4) == 0 ? rng() : rng.below(9));
    }
    ASSERT_EQ(decoded(encoded(fields)), fields);
  }
}

TEST(FieldEncoding, TellsListsApartThatAreOneTextWhenJoined) {
  const std::string length_of_one("\1\0\0\0\0\0\0\0", 8);
  const std::vector<Fields> lists{{},
                                  {""},
                                  {"", ""},
                                  {"ab"},
                                  {"a", "b"},
                                  {"a", "b", ""},
                                  {"", "ab"},
                                  {"b", "a"},
                                  {length_of_one + "a"},
                                  {length_of_one, "a"},
                                  {"a" + length_of_one + "b"}};
  std::set<std::vector<std::byte>> encodings;
  for (const Fields& list : lists) encodings.insert(encoded(list));
  EXPECT_EQ(encodings.size(), lists.size());
}

// def field(b): return len(b).to_bytes(8, 'little') + b
// def num(n): return field(n.to_bytes(8, 'little'))
// hashlib.sha256(field(b"terrace namespace 1") + field(b"6fe3") + field(b"") + field(b"bf16")
//   + num(32) + num(0) + num(32) + num(8) + num(4) + num(4) + num(128) + field(b"theta 500000")
//   + num(1) + num(2) + num(4) + field(b"secret")).hexdigest()
TEST(Namespace, HasTheDigestThatAnotherSha256Gives) {
  EXPECT_EQ(hex(some_namespace().digest()),
            "f697e63a326c0e15c9b4c1ad5dd02821a9387095984c877547b7e66619b17227");
}

using Edit = std::function<void(Namespace&)>;

const std::vector<Edit>& edits() {
  static const std::vector<Edit> all{
      [](Namespace& n) { n.model_fingerprint = "6fe4"; },
      [](Namespace& n) { n.adapter = "a"; },
      [](Namespace& n) { n.kv_dtype = Dtype::f16; },
      [](Namespace& n) { n.layers.whole = 33; },
      [](Namespace& n) { n.layers = {.whole = 32, .begin = 1, .count = 31}; },
      [](Namespace& n) { n.layers.count = 31; },
      [](Namespace& n) { n.kv_heads.whole = 16; },
      [](Namespace& n) { n.kv_heads.begin = 0; },
      [](Namespace& n) { n.kv_heads.count = 2; },
      [](Namespace& n) { n.head_dim = 64; },
      [](Namespace& n) { n.rope = "theta 10000"; },
      [](Namespace& n) { n.layout_version = 2; },
      [](Namespace& n) { n.block_tokens = 4; },
      [](Namespace& n) { n.chunk_tokens = 8; },
      [](Namespace& n) { n.salt = TenantSalt("another"); },
      [](Namespace& n) { n.salt = {}; },
      // A byte that moves from one field into the next.
      [](Namespace& n) { n.model_fingerprint = "6fe", n.adapter = "3"; },
  };
  return all;
}

TEST(Namespace, HasAnotherDigestIfAnyFieldDiffers) {
  std::set<std::string> digests{hex(some_namespace().digest())};
  for (const Edit& edit : edits()) {
    Namespace other = some_namespace();
    edit(other);
    digests.insert(hex(other.digest()));
  }
  EXPECT_EQ(digests.size(), edits().size() + 1);
}

TEST(Namespace, IsRefusedIfItDescribesNoCache) {
  const std::vector<Edit> faults{
      [](Namespace& n) { n.model_fingerprint.clear(); },
      [](Namespace& n) { n.layers.count = 0; },
      [](Namespace& n) { n.layers.begin = 1; },
      [](Namespace& n) { n.kv_heads.begin = 9; },
      [](Namespace& n) { n.kv_heads.count = ~std::uint64_t{0}; },
      [](Namespace& n) { n.head_dim = 0; },
      [](Namespace& n) { n.block_tokens = 0; },
      [](Namespace& n) { n.chunk_tokens = 0; },
      [](Namespace& n) { n.chunk_tokens = 3; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    Namespace faulty = some_namespace();
    faults[i](faulty);
    const Result<Digest> digest = faulty.digest();
    ASSERT_FALSE(digest) << "fault " << i;
    EXPECT_EQ(digest.error().code, Errc::invalid_argument);
    EXPECT_EQ(digest.error().message().find("secret"), std::string_view::npos);
  }
}

TEST(Namespace, IsDescribedWithoutItsSalt) {
  const std::string line = some_namespace().describe();
  EXPECT_EQ(line,
            "model 6fe3, adapter none, bf16, layers 0-31 of 32, KV heads 4-7 of 8 of 128 elements, "
            "rope theta 500000, layout 1, chunks of 4 tokens, blocks of 2, salted");
  Namespace unsalted = some_namespace();
  unsalted.salt = {};
  EXPECT_TRUE(unsalted.describe().ends_with("no salt"));
}

}  // namespace
}  // namespace terrace::tiers
