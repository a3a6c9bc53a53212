// Files of gates: the bundled one gives what Python computed, and damaged ones are refused.
#include "terrace/engine/gates.hpp"

#include <gmock/gmock.h>

#include <limits>

#include "golden.hpp"
#include "safetensors_writer.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;
using policies::Gates;
using testing::AllOf;
using testing::HasSubstr;

constexpr KvShape shape{.layers = 2, .query_heads = 6, .kv_heads = 3, .head_dim = 4};
constexpr const char* fingerprint = "0123456789abcdef";

struct NamedShape {
  std::string name;
  std::vector<std::size_t> sizes;
};

/// The tensors of gates 4 -> 5 -> 1.
std::vector<NamedShape> small_tensors() {
  std::vector<NamedShape> tensors;
  for (const char* layer : {"layers.0", "layers.1"}) {
    tensors.push_back({fmt::format("{}.0.weight", layer), {3, 5, 4}});
    tensors.push_back({fmt::format("{}.0.bias", layer), {3, 5}});
    tensors.push_back({fmt::format("{}.1.weight", layer), {3, 1, 5}});
    tensors.push_back({fmt::format("{}.1.bias", layer), {3, 1}});
  }
  return tensors;
}

SafetensorsWriter writer_of(const std::vector<NamedShape>& tensors) {
  SafetensorsWriter writer;
  for (const NamedShape& each : tensors) writer.add(each.name, each.sizes);
  return writer.add_metadata("format", "terrace gates 1")
      .add_metadata("model", "small")
      .add_metadata("model_fingerprint", fingerprint);
}

Result<Gates> read(const std::string& file, const KvShape& of = shape,
                   const char* model = fingerprint) {
  const TemporaryFolder folder;
  return read_gates(folder.write("some.safetensors", file), of, model);
}

/// The line that says why; the file is always named.
std::string refusal(const std::string& file, const KvShape& of = shape,
                    const char* model = fingerprint) {
  const auto gates = read(file, of, model);
  if (gates) return "it was read";
  EXPECT_THAT(std::string(gates.error().message()), HasSubstr("some.safetensors"));
  return std::string(gates.error().message());
}

TEST(ReadGates, TakesGatesOfTheModel) {
  const std::string file = writer_of(small_tensors()).file();
  EXPECT_TRUE(read(file)->check_shape(shape).has_value());
}

TEST(ReadGates, GiveTheRatingsThatPythonComputed) {
  const ModelConfig config = read_model_config(tiny_model()).value();
  const json golden = cases_of("tiny_gates.json").front();
  const auto gates = read_gates(tiny_model() + "/gates.safetensors", config.kv_shape(Dtype::f16),
                                golden.at("model_fingerprint").get<std::string>());
  ASSERT_TRUE(gates.has_value()) << gates.error().message();
  Serial serial;
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    const auto keys = golden.at("keys").at(layer).get<std::vector<float>>();
    const auto expected = golden.at("ratings").at(layer).get<std::vector<float>>();
    ASSERT_EQ(keys.size(), expected.size() * config.head_dim);
    std::vector<float> ratings(expected.size());
    gates->rate(LayerId(static_cast<std::uint32_t>(layer)), keys, ratings, serial);
    for (std::size_t i = 0; i < ratings.size(); ++i) {
      // Ratings are below 7 and rounded to 5 digits; f32 on both sides.
      EXPECT_NEAR(ratings[i], expected[i], 3e-5) << "layer " << layer << ", rating " << i;
    }
  }
}

TEST(ReadGates, RefusesThoseOfAnotherModel) {
  const std::string file = writer_of(small_tensors()).file();
  EXPECT_THAT(refusal(file, shape, "fedcba9876543210"),
              AllOf(HasSubstr("another model (small, fingerprint 0123456789abcdef"),
                    HasSubstr("tools/train_gates.py")));
}

TEST(ReadGates, RefusesOtherFormats) {
  const std::string file = SafetensorsWriter().add("layers.0.0.weight", {3, 1, 4}).file();
  EXPECT_THAT(refusal(file), HasSubstr("holds no gates"));
}

TEST(ReadGates, NamesATensorThatIsMissing) {
  for (std::size_t i = 0; i < small_tensors().size(); ++i) {
    auto tensors = small_tensors();
    const std::string name = tensors[i].name;
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(refusal(writer_of(tensors).file()), HasSubstr("has no tensor " + name));
  }
}

TEST(ReadGates, RefusesATensorTooMany) {
  auto tensors = small_tensors();
  tensors.push_back({"layers.0.1.scale", {1}});
  EXPECT_THAT(refusal(writer_of(tensors).file()), HasSubstr("has no tensor layers.0.2.weight"));
}

TEST(ReadGates, NamesATensorOfAnotherShape) {
  for (std::size_t i = 0; i < small_tensors().size(); ++i) {
    auto tensors = small_tensors();
    tensors[i].sizes.push_back(1);
    EXPECT_THAT(refusal(writer_of(tensors).file()), AllOf(HasSubstr("tensor " + tensors[i].name),
                                                          HasSubstr(", 1]"), HasSubstr("needed")));
  }
  const std::string file = writer_of(small_tensors()).file();
  KvShape other = shape;
  other.head_dim = 6;
  EXPECT_THAT(refusal(file, other), HasSubstr("[3, 5, 4], [3, 5, 6] is needed"));
  other = shape;
  other.layers = 1;  // then there are two stages more
  EXPECT_THAT(refusal(file, other), HasSubstr("has no tensor layers.0.2.weight"));
  other = shape;
  other.layers = 3;
  EXPECT_THAT(refusal(file, other), HasSubstr("has no tensor layers.2.0.weight"));
}

TEST(ReadGates, NamesTheGateWithANumberThatIsNone) {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SafetensorsWriter writer;
    for (const NamedShape& each : small_tensors()) {
      const bool changed = each.name == "layers.1.1.bias";
      writer.add(each.name, each.sizes, changed ? odd : 0.5F);
    }
    writer.add_metadata("format", "terrace gates 1").add_metadata("model_fingerprint", fingerprint);
    EXPECT_THAT(refusal(writer.file()),
                HasSubstr("layer 1, KV head 0 has the number " + fmt::format("{}", odd)));
  }
}

TEST(ReadGates, RefusesOtherElementTypes) {
  auto tensors = small_tensors();
  tensors.pop_back();
  const std::string file =
      writer_of(tensors).add_raw("layers.1.1.bias", "I16", {3, 1}, std::string(6, 'x')).file();
  EXPECT_THAT(refusal(file), HasSubstr("layers.1.1.bias is I16"));
}

TEST(ReadGates, RefusesAFileThatWasCutShortAnywhere) {
  const std::string file = writer_of(small_tensors()).file();
  for (std::size_t length = 1; length < file.size(); length += 13) {
    const auto gates = read(file.substr(0, length));
    ASSERT_FALSE(gates.has_value()) << length;
    EXPECT_EQ(gates.error().code, Errc::corrupt) << length;
  }
  EXPECT_EQ(read_gates("/nowhere/gates.safetensors", shape, fingerprint).error().code,
            Errc::io_error);
}

}  // namespace
}  // namespace terrace::engine
