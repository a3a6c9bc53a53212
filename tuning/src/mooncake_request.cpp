#include "mooncake_request.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "imported_requests.hpp"
#include "terrace/core/json_text.hpp"

namespace terrace::tuning {
namespace {

using nlohmann::json;

constexpr std::uint64_t times_end = std::uint64_t{1} << 53;  // as a trace has them

/// Returns the complaint of a JSON parser, without the text that it was reading: it may be long.
std::string reason_of(std::string_view what) {
  constexpr std::string_view place = "column ";
  if (const auto at = what.find(place); at != std::string_view::npos) what.remove_prefix(at);
  if (const auto end = what.find("; last read"); end != std::string_view::npos) {
    what = what.substr(0, end);
  }
  return fmt::format("no JSON: {}", what);
}

/// Keeps the fields of a request while its line is parsed, and nothing of the others.
class RequestParser final : public json::json_sax_t {
 public:
  explicit RequestParser(MooncakeRequest& request) : request_(request) {
    request_.timestamp.reset();
  }

  /// Says what is wrong; empty where nothing is. To be asked when the line is parsed.
  [[nodiscard]] std::string flaw() const {
    if (!flaw_.empty()) return flaw_;
    if (!has_length_) return "no field input_length; give one";
    if (!has_ids_) return "no field hash_ids; give one";
    return request_.hash_ids.empty() ? "hash_ids is no list of at least one id" : "";
  }

  bool null() override { return take(std::nullopt); }
  bool boolean(bool /*value*/) override { return take(std::nullopt); }
  bool number_integer(std::int64_t value) override {
    return take(value < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(value)));
  }
  bool number_unsigned(std::uint64_t value) override { return take(value); }
  bool number_float(double value, const std::string& /*text*/) override {
    const bool is_time = depth_ == 1 && field_ == Field::timestamp;
    return take(whole_number(is_time ? std::floor(value) : value));
  }
  bool string(std::string& /*value*/) override { return take(std::nullopt); }
  bool binary(json::binary_t& /*value*/) override { return take(std::nullopt); }
  bool start_object(std::size_t /*size*/) override {
    if (depth_ > 0 && !take(std::nullopt)) return false;
    ++depth_;
    return true;
  }
  bool end_object() override { return end(); }
  bool start_array(std::size_t /*size*/) override {
    const bool ids = depth_ == 1 && field_ == Field::hash_ids;
    if (ids) {
      has_ids_ = in_ids_ = true;
      request_.hash_ids.clear();
    }
    if (!ids && !take(std::nullopt)) return false;
    ++depth_;
    return true;
  }
  bool end_array() override { return end(); }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    field_ = name == "input_length" ? Field::input_length
             : name == "hash_ids"   ? Field::hash_ids
             : name == "timestamp"  ? Field::timestamp
                                    : Field::other;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const json::exception& error) override {
    return refuse(reason_of(error.what()));
  }

 private:
  enum class Field : std::uint8_t { other, input_length, hash_ids, timestamp };

  /// A value that begins; a number, if it is a whole one from 0 on.
  bool take(std::optional<std::uint64_t> number) {
    if (depth_ == 0) return refuse("no JSON object; give one request a line");
    if (in_ids_ && depth_ == 2) {
      if (!number) return refuse("an id in hash_ids is no whole number from 0 on");
      request_.hash_ids.push_back(*number);
    }
    if (depth_ != 1 || field_ == Field::other) return true;
    if (field_ == Field::timestamp) {
      // A date in words is as good as no time.
      request_.timestamp = number && *number < times_end ? number : std::nullopt;
      return true;
    }
    if (field_ == Field::hash_ids) return refuse("hash_ids is no list of at least one id");
    if (number.value_or(0) == 0) return refuse("input_length is no whole number above zero");
    request_.input_length = *number;
    has_length_ = true;
    return true;
  }

  bool end() {
    if (--depth_ == 1) in_ids_ = false;
    return true;
  }

  bool refuse(std::string flaw) {
    flaw_ = std::move(flaw);
    return false;
  }

  MooncakeRequest& request_;
  std::size_t depth_ = 0;
  Field field_ = Field::other;
  bool in_ids_ = false;
  bool has_length_ = false;
  bool has_ids_ = false;
  std::string flaw_;
};

}  // namespace

std::string MooncakeRequest::read(std::string_view line) {
  if (const std::string_view flaw = flaw_of_json_text(line); !flaw.empty()) {
    return fmt::format("no JSON: {}", flaw);
  }
  RequestParser parser(*this);
  json::sax_parse(line.begin(), line.end(), &parser);
  return parser.flaw();
}

void BlockSizes::take(const MooncakeRequest& request) {
  const std::uint64_t blocks = request.hash_ids.size();
  low_ = std::max(low_, (request.input_length - 1) / blocks + 1);
  if (blocks > 1) high_ = std::min(high_, (request.input_length - 1) / (blocks - 1));
}

std::optional<std::size_t> BlockSizes::fitting() const noexcept {
  if (low_ > high_) return std::nullopt;
  const std::uint64_t power = std::bit_ceil(low_);
  return power <= high_ ? power : low_;
}

}  // namespace terrace::tuning
