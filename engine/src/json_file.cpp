#include "json_file.hpp"

#include <string>
#include <unordered_set>
#include <vector>

#include "terrace/core/json_text.hpp"
#include "terrace/engine/mapped_file.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;

// No file of a model nests deeper than 4, and the parser's memory grows with depth. The reference
// parser of safetensors refuses a header that is nested deeper than this.
constexpr int depth_max = 127;

// An index of a hundred thousand tensors has 10 MB.
constexpr std::size_t json_bytes_max = 100'000'000;

/// Watches the parser: notes what is legal JSON but not legal here.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(value.get_ref<const std::string&>()).second) repeats_ = true;
        break;
      default:
        break;
    }
    if (depth > depth_max) too_deep_ = true;
    return !too_deep_;
  }

  [[nodiscard]] const char* complaint() const noexcept {
    if (too_deep_) return "is nested too deep";
    return repeats_ ? "has a key twice in one object" : nullptr;
  }

 private:
  std::vector<std::unordered_set<std::string>> keys_;
  bool repeats_ = false;
  bool too_deep_ = false;
};

}  // namespace

Result<json> parse_json_object(std::span<const std::byte> text, std::string_view label) try {
  const std::string_view view(reinterpret_cast<const char*>(text.data()), text.size());
  if (const std::string_view flaw = flaw_of_json_text(view); !flaw.empty()) {
    return fail(Errc::corrupt, "{}: is no JSON: {}", label, flaw);
  }
  Watch watch;
  json value = json::parse(view.begin(), view.end(), std::ref(watch), false);
  if (watch.complaint() != nullptr) {
    return fail(Errc::corrupt, "{}: the JSON {}", label, watch.complaint());
  }
  if (!value.is_object()) {
    return fail(Errc::corrupt, "{}: holds no JSON object; is the file damaged?", label);
  }
  return value;
} catch (const std::bad_alloc&) {
  return fail(Errc::out_of_memory, "{}: no memory to parse {} bytes of JSON", label, text.size());
}

Result<json> read_json_object(const std::filesystem::path& path) {
  TERRACE_ASSIGN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > json_bytes_max) {
    return fail(Errc::corrupt, "{}: is larger than {} bytes; is this the right file?",
                path.string(), json_bytes_max);
  }
  return parse_json_object(file.bytes(), path.string());
}

}  // namespace terrace::engine
