#include "device_ops/measured_op.hpp"

#include <fmt/core.h>

#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t calls_of_run = 32;

Question question_of_op(const std::string& name, std::size_t tokens, const DeviceSettings& settings,
                        const MakeOp& make) {
  const std::string full_name = fmt::format("device_{}_n{}", name, tokens);
  const auto prepare = [=](bool quick) -> Result<Contest> {
    const std::size_t calls = quick ? 2 : calls_of_run;
    TERRACE_ASSIGN(auto device, MeasuredDevice::create(settings.make, settings.patience));
    TERRACE_ASSIGN(const auto op, make(std::move(device), quick ? 2048 : tokens));
    return Contest{.ours = {.name = full_name,
                            .version = std::string(version()),
                            .bytes = static_cast<double>(calls * op->bytes()),
                            .run = [op, calls] { op->run(calls); },
                            .verify =
                                [op] {
                                  const Status ran = op->status();
                                  return ran ? op->verify() : ran;
                                }},
                   .peer = {}};
  };
  return {.name = full_name,
          .unit = "B/s",
          .better = Better::higher,
          .parameters = {{"tokens", tokens},
                         {"query_heads", measured_layer.query_heads},
                         {"kv_heads", measured_layer.kv_heads},
                         {"head_dim", measured_layer.head_dim},
                         {"dtype", to_string(measured_layer.dtype)},
                         {"calls", calls_of_run}},
          .prepare = prepare};
}

}  // namespace

void MeasuredOp::run(std::size_t calls) {
  status_ = [&]() -> Status {
    Ticket last;
    for (std::size_t i = 0; i < calls; ++i) {
      TERRACE_ASSIGN(last, enqueue());
    }
    return device_->wait(last);
  }();
}

std::vector<Question> questions_of_op(const std::string& name, const DeviceSettings& settings,
                                      const MakeOp& make) {
  std::vector<Question> questions;
  for (const std::size_t tokens : {std::size_t{16'384}, std::size_t{131'072}}) {
    questions.push_back(question_of_op(name, tokens, settings, make));
  }
  return questions;
}

}  // namespace terrace::bench
