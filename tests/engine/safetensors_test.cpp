#include "terrace/engine/safetensors.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "safetensors_writer.hpp"

namespace terrace::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<TensorMap> parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "x.safetensors");
}

Result<TensorMap> parse(const std::string& header, std::size_t data_bytes) {
  return parse(safetensors_file(header, std::string(data_bytes, '\0')));
}

TEST(ParseSafetensors, FindsTensorsOfAllDtypes) {
  const auto tensors = parse(R"({"__metadata__": {"format": "pt"},
      "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
      "b": {"dtype": "F16", "shape": [3], "data_offsets": [24, 30]},
      "c": {"dtype": "BF16", "shape": [], "data_offsets": [30, 32]},
      "d": {"dtype": "F32", "shape": [0, 9], "data_offsets": [32, 32]}}  )",
                             32)
                           .value();
  EXPECT_EQ(tensors.size(), 4U);
  EXPECT_THAT(tensors.at("a").shape, ElementsAre(2U, 3U));
  EXPECT_EQ(tensors.at("b").dtype, Dtype::f16);
  EXPECT_EQ(tensors.at("b").bytes.size(), 6U);
  EXPECT_EQ(tensors.at("c").dtype, Dtype::bf16);
  EXPECT_TRUE(tensors.at("d").bytes.empty());
}

TEST(ParseSafetensors, NamesWhatIsWrongWithATensor) {
  struct Case {
    const char* header;
    const char* complaint;
  };
  const Case cases[] = {
      {R"({"t": 1})", "no JSON object"},
      {R"({"t": {"shape": [2], "data_offsets": [0, 8]}})", "dtype"},
      {R"({"t": {"dtype": "F128", "shape": [1], "data_offsets": [0, 8]}})", "dtype"},
      {R"({"t": {"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}})", "needs 16 bytes"},
      {R"({"t": {"dtype": "F4", "shape": [15], "data_offsets": [0, 8]}})", "whole number of bytes"},
      {R"({"t": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}})", "shape"},
      {R"({"t": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", "shape"},
      {R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0]}})", "data_offsets"},
      {R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", "data_offsets"},
      {R"({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 1e3]}})", "data_offsets"},
      {R"({"t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}})", "ends at byte 12 of 8"},
      {R"({"t": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", "needs 12 bytes"},
      {R"({"t": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 8]}})",
       "tensor t"},
  };
  for (const auto& [header, complaint] : cases) {
    const auto tensors = parse(header, 8);
    ASSERT_FALSE(tensors.has_value()) << header;
    EXPECT_THAT(std::string(tensors.error().message()), HasSubstr(complaint)) << header;
    EXPECT_THAT(std::string(tensors.error().message()), HasSubstr("x.safetensors: tensor t"));
  }
}

TEST(ParseSafetensors, RefusesOverlapsHolesAndLeftovers) {
  const auto with = [](const char* a, const char* b) {
    return fmt::format(R"({{"a": {{"dtype": "F16", "shape": [2], "data_offsets": {}}},
                           "b": {{"dtype": "F16", "shape": [2], "data_offsets": {}}}}})",
                       a, b);
  };
  EXPECT_TRUE(parse(with("[4, 8]", "[0, 4]"), 8).has_value());
  EXPECT_EQ(parse(with("[0, 4]", "[2, 6]"), 6).error().code, Errc::corrupt);
  EXPECT_EQ(parse(with("[0, 4]", "[0, 4]"), 4).error().code, Errc::corrupt);
  EXPECT_EQ(parse(with("[0, 4]", "[6, 10]"), 10).error().code, Errc::corrupt);
  EXPECT_EQ(parse(with("[2, 6]", "[6, 10]"), 10).error().code, Errc::corrupt);
  EXPECT_THAT(std::string(parse(with("[0, 4]", "[4, 8]"), 9).error().message()),
              HasSubstr("1 bytes follow the last tensor"));
}

/// An entry with a field that the format does not know.
std::string with_field(const std::string& value) {
  return R"({"dtype": "F16", "shape": [1], "data_offsets": [0, 2], "more": )" + value + "}";
}

std::string nested(std::size_t depth) {
  return std::string(depth, '[') + "1" + std::string(depth, ']');
}

// All files that the reference parser (safetensors 0.8.0 of PyPI) accepts are accepted, and no
// others. The parser does not check one rule of the format: no name may occur twice.
TEST(ParseSafetensors, TakesAllThatTheReferenceParserTakes) {
  const std::string entry = R"({"dtype": "F16", "shape": [1], "data_offsets": [0, 2]})";
  const std::string headers[] = {
      " {\"a\": " + entry + "}\n\t\r ",
      "{\"\": " + entry + "}",
      "{\"a\\nb\": " + entry + "}",
      "{\"a\\u0000b\": " + entry + "}",
      "{\"__metadata__\": null, \"a\": " + entry + "}",
      "{\"a\": " + with_field("123456789012345678901234567890") + "}",
      "{\"a\": " + with_field(nested(125)) + "}",
  };
  for (const std::string& header : headers) {
    const auto tensors = parse(safetensors_file(header, "xx"));
    ASSERT_TRUE(tensors.has_value()) << header << tensors.error().message();
    EXPECT_EQ(tensors->begin()->second.bytes.size(), 2U) << header;
  }
  EXPECT_TRUE(parse("{}", 0).has_value());
  EXPECT_TRUE(
      parse(R"({"a": {"dtype": "F32", "shape": [0, 18446744073709551615], "data_offsets": [0, 0]},
                "b": {"dtype": "F4", "shape": [0], "data_offsets": [0, 0]}})",
            0)
          .has_value());
}

TEST(ParseSafetensors, KnowsTheSizesOfAllElementTypes) {
  const std::pair<std::size_t, std::vector<const char*>> types[] = {
      {4, {"F4"}},
      {6, {"F6_E2M3", "F6_E3M2"}},
      {8, {"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"}},
      {16, {"I16", "U16", "F16", "BF16"}},
      {32, {"I32", "U32", "F32"}},
      {64, {"C64", "F64", "I64", "U64"}},
  };
  for (const auto& [bits, names] : types) {
    for (const char* const name : names) {
      const auto header = fmt::format(
          R"({{"t": {{"dtype": "{}", "shape": [2, 4], "data_offsets": [0, {}]}}}})", name, bits);
      const auto tensors = parse(header, bits);
      ASSERT_TRUE(tensors.has_value()) << name << ": " << tensors.error().message();
      EXPECT_EQ(tensors->at("t").element_type, name);
      EXPECT_EQ(tensors->at("t").dtype.has_value(),
                std::string(name).ends_with("F16") || std::string(name) == "F32");
    }
  }
}

TEST(ParseSafetensors, RefusesABadHeader) {
  const std::string entry = R"({"dtype": "F16", "shape": [1], "data_offsets": [0, 2]})";
  const std::string files[] = {
      "",
      "1234567",
      std::string(8, '\0'),
      std::string(8, '\xff'),
      safetensors_file("{", ""),
      safetensors_file("[]", ""),
      safetensors_file("\xef\xbb\xbf{\"a\": " + entry + "}", "xx"),
      safetensors_file("{\"a\": " + entry + "}" + std::string(2, '\0'), "xx"),
      safetensors_file("{\"a\": " + entry + "}x", "xx"),
      safetensors_file("{\"\xff\": " + entry + "}", "xx"),
      safetensors_file("{\"__metadata__\": {\"a\": 1}, \"a\": " + entry + "}", "xx"),
      safetensors_file("{\"__metadata__\": \"a\", \"a\": " + entry + "}", "xx"),
      safetensors_file("{\"a\": " + with_field(nested(126)) + "}", "xx"),
      safetensors_file("{\"a\": " + entry + ", \"a\": " + entry + "}", "xx"),
      safetensors_file("{\"a\": " + entry + "}", "xx").substr(0, 30),
  };
  for (const std::string& file : files) {
    const auto tensors = parse(file);
    ASSERT_FALSE(tensors.has_value()) << file;
    EXPECT_EQ(tensors.error().code, Errc::corrupt) << file;
    EXPECT_EQ(tensors.error().message().find('\n'), std::string_view::npos);
  }
  std::string huge = safetensors_file("{}", "");
  huge[3] = '\x7f';  // some 2 GB of header
  EXPECT_THAT(std::string(parse(huge).error().message()), HasSubstr("is above 100000000"));
}

/// A folder with an index and two shards, one tensor each.
struct Shards {
  Shards() {
    folder.write("one.safetensors", SafetensorsWriter().add("a", {2}, 1.0F).file());
    folder.write("two.safetensors", SafetensorsWriter().add("b", {3}, 2.0F).file());
    map({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  }
  void map(const nlohmann::json& weight_map) const {
    folder.write("model.safetensors.index.json",
                 nlohmann::json{{"metadata", {}}, {"weight_map", weight_map}}.dump());
  }
  TemporaryFolder folder;
};

TEST(Safetensors, JoinsTheShardsOfAnIndex) {
  const Shards shards;
  const Safetensors tensors = Safetensors::open(shards.folder.path()).value();
  EXPECT_EQ(tensors.tensors().size(), 2U);
  const Tensor b = tensors.find("b").value();
  EXPECT_EQ(load_f32(b.bytes.data(), *b.dtype, 0), 2.0F);
  EXPECT_THAT(std::string(tensors.find("c").error().message()), HasSubstr("no tensor c"));
}

TEST(Safetensors, NamesAShardThatIsMissing) {
  const Shards shards;
  std::filesystem::remove(shards.folder.path() / "two.safetensors");
  const auto tensors = Safetensors::open(shards.folder.path());
  EXPECT_EQ(tensors.error().code, Errc::io_error);
  EXPECT_THAT(std::string(tensors.error().message()), HasSubstr("two.safetensors"));
}

TEST(Safetensors, NamesATensorThatItsShardLacks) {
  const Shards shards;
  shards.map({{"a", "one.safetensors"}, {"b", "one.safetensors"}});
  const auto tensors = Safetensors::open(shards.folder.path());
  EXPECT_EQ(tensors.error().code, Errc::corrupt);
  EXPECT_THAT(std::string(tensors.error().message()), HasSubstr("lacks tensor b"));
}

TEST(Safetensors, KeepsAnIndexInsideItsFolder) {
  const Shards shards;
  const nlohmann::json wrong[] = {
      {{"a", "../one.safetensors"}}, {{"a", "/etc/passwd"}}, {{"a", ".."}}, {{"a", ""}}, {{"a", 1}},
      nlohmann::json::array(),
  };
  for (const nlohmann::json& weight_map : wrong) {
    shards.map(weight_map);
    const auto tensors = Safetensors::open(shards.folder.path());
    ASSERT_FALSE(tensors.has_value()) << weight_map;
    EXPECT_EQ(tensors.error().code, Errc::corrupt) << weight_map;
    EXPECT_THAT(std::string(tensors.error().message()), HasSubstr("weight_map"));
  }
}

TEST(Safetensors, NamesALinkThatLeadsToNothing) {
  for (const char* const name : {"model.safetensors", "model.safetensors.index.json"}) {
    const TemporaryFolder folder;
    std::filesystem::create_symlink("../blobs/4e1f", folder / name);
    const auto tensors = Safetensors::open(folder.path());
    ASSERT_FALSE(tensors.has_value()) << name;
    EXPECT_EQ(tensors.error().code, Errc::io_error);
    EXPECT_THAT(std::string(tensors.error().message()),
                HasSubstr(std::string(name) + ": is a link to ../blobs/4e1f, which is not there"));
  }
  const Shards shards;
  std::filesystem::remove(shards.folder / "two.safetensors");
  std::filesystem::create_symlink("gone", shards.folder / "two.safetensors");
  EXPECT_THAT(std::string(Safetensors::open(shards.folder.path()).error().message()),
              HasSubstr("two.safetensors: is a link to gone"));
}

TEST(Safetensors, SaysWhatAFolderLacks) {
  const TemporaryFolder folder;
  EXPECT_EQ(Safetensors::open(folder.path()).error().code, Errc::io_error);
  folder.write("model.safetensors", "");
  EXPECT_THAT(std::string(Safetensors::open(folder.path()).error().message()),
              HasSubstr("model.safetensors: is empty"));
}

}  // namespace
}  // namespace terrace::engine
