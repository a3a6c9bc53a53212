#include "backend_choice.hpp"

#include <fmt/core.h>

namespace terrace::apps {

offload::BackendOptions backend_options(const Config& config, const BackendContext& context) {
  offload::BackendOptions options = offload::BackendOptions::from(config);
  options.host.observer = options.cuda.observer = context.observer;
  options.cuda.times = context.times;
  if (context.profile != nullptr && context.profile->link) {
    options.cuda.switch_over_bytes = static_cast<std::size_t>(context.profile->link->switch_over);
  }
  return options;
}

Result<offload::ChosenBackend> choose_backend(const Config& config, const BackendContext& context) {
  return offload::make_backend(config.text("backend"), backend_options(config, context));
}

std::string describe(const offload::BackendChoice& backend) {
  return fmt::format("{}{}{} ({})", backend.name, backend.device.empty() ? "" : " on ",
                     backend.device, backend.reason);
}

Result<offload::BackendChoice> find_backend(const Config& config) {
  return choose_backend(config).map(
      [](offload::ChosenBackend chosen) { return std::move(chosen.choice); });
}

}  // namespace terrace::apps
