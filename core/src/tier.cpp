#include "terrace/core/tier.hpp"

namespace terrace {

std::string_view to_string(Tier tier) noexcept {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::nvme:
      return "nvme";
    case Tier::remote:
      return "remote";
  }
  return "unknown";
}

std::string_view to_string(Purpose purpose) noexcept {
  switch (purpose) {
    case Purpose::kv:
      return "kv";
    case Purpose::index:
      return "index";
    case Purpose::cache:
      return "cache";
    case Purpose::staging:
      return "staging";
    case Purpose::model:
      return "model";
  }
  return "unknown";
}

}  // namespace terrace
