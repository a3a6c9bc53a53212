#include "outlier_file.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "terrace/core/input_file.hpp"
#include "terrace/core/json_text.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;
using policies::KvHead;

constexpr std::string_view format_name = "terrace outlier heads 1";
// A head is a hundred bytes; models have some thousand.
constexpr std::size_t file_bytes_max = std::size_t{16} << 20;

Result<json> parse(const std::string& text) {
  if (const std::string_view flaw = flaw_of_json_text(text); !flaw.empty()) {
    return fail(Errc::invalid_argument, "is no JSON: {}", flaw);
  }
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    return fail(Errc::invalid_argument, "is no JSON, from byte {} on", error.byte);
  } catch (const json::exception& error) {  // as a number beyond all bounds
    return fail(Errc::invalid_argument, "is no JSON ({})", error.what());
  }
}

/// Errors: invalid_argument: no such number, or one that no size is.
Result<std::uint32_t> number_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found != object.end() && found->is_number_unsigned()) {
    const auto number = found->get<std::uint64_t>();
    if (number <= std::numeric_limits<std::uint32_t>::max()) {
      return static_cast<std::uint32_t>(number);
    }
  }
  return fail(Errc::invalid_argument, "has no whole number {}", name);
}

/// Errors: invalid_argument: a number is missing, or a share is not between 0 and 1.
Result<KvHead> head_of(const json& one) {
  if (!one.is_object()) return fail(Errc::invalid_argument, "is no object");
  TERRACE_ASSIGN(const std::uint32_t layer, number_of(one, "layer"));
  TERRACE_ASSIGN(const std::uint32_t head, number_of(one, "head"));
  const auto share = one.find("share");
  const bool is_share = share != one.end() && share->is_number() && *share >= 0.0 && *share <= 1.0;
  if (!is_share) return fail(Errc::invalid_argument, "has no share from 0 to 1");
  return KvHead{LayerId{layer}, HeadId{head}};
}

/// Errors: invalid_argument: another kind of file, or of a model of another size.
Status check_model(const json& document, const KvShape& shape) {
  const auto format = document.find("format");
  if (format == document.end() || *format != format_name) {
    return fail(Errc::invalid_argument,
                "names no outlier heads that terrace calibrate --write wrote (\"{}\")",
                format_name);
  }
  TERRACE_ASSIGN(const std::uint32_t layers, number_of(document, "layers"));
  TERRACE_ASSIGN(const std::uint32_t kv_heads, number_of(document, "kv_heads"));
  if (layers == shape.layers && kv_heads == shape.kv_heads) return {};
  return fail(Errc::invalid_argument,
              "is of a model with {} layers of {} KV heads, this one has {} of {}: run terrace "
              "calibrate on it",
              layers, kv_heads, shape.layers, shape.kv_heads);
}

Result<policies::OutlierHeads> heads_of(const json& document, const KvShape& shape) {
  if (!document.is_object()) return fail(Errc::invalid_argument, "is no JSON object");
  TERRACE_TRY(check_model(document, shape));
  const auto list = document.find("heads");
  if (list == document.end() || !list->is_array()) {
    return fail(Errc::invalid_argument, "has no list of heads");
  }
  std::vector<KvHead> heads;
  for (const json& one : *list) {
    const auto read = head_of(one).map_error([&](const Error& error) {
      return error.while_doing(fmt::format("heads[{}]", heads.size()));
    });
    if (!read) return tl::unexpected(read.error());
    heads.push_back(*read);
  }
  return policies::OutlierHeads::create(shape.layers, shape.kv_heads, std::move(heads));
}

}  // namespace

std::string outlier_file(const policies::HeadShares& shares, const KvShape& shape, double part) {
  nlohmann::ordered_json heads = nlohmann::ordered_json::array();
  for (const KvHead& head : shares.largest(part)) {
    const std::size_t at = index(head.layer) * shape.kv_heads + index(head.head);
    heads.push_back({{"layer", index(head.layer)},
                     {"head", index(head.head)},
                     {"share", shares.heads[at].share}});
  }
  const nlohmann::ordered_json document{{"format", format_name},
                                        {"layers", shape.layers},
                                        {"kv_heads", shape.kv_heads},
                                        {"threshold", shares.threshold},
                                        {"heads", std::move(heads)}};
  return document.dump(2) + "\n";
}

Result<SharedOutliers> read_outlier_heads(const Config& config, const KvShape& shape) {
  const std::string& path = config.text("retention.outlier_heads");
  if (path.empty()) return SharedOutliers{};
  const auto named = [&](const Error& error) {
    return error.while_doing("retention.outlier_heads: " + path);
  };
  const auto of_key = [](const Error& error) {
    return error.while_doing("retention.outlier_heads");
  };
  TERRACE_ASSIGN(InputFile file, InputFile::open(path).map_error(of_key));
  TERRACE_ASSIGN(const std::string text, file.read_whole(file_bytes_max).map_error(of_key));
  TERRACE_ASSIGN(const json document, parse(text).map_error(named));
  TERRACE_ASSIGN(policies::OutlierHeads heads, heads_of(document, shape).map_error(named));
  return std::make_shared<const policies::OutlierHeads>(std::move(heads));
}

}  // namespace terrace::apps
