#include "bench_pcie.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "backend_choice.hpp"
#include "bench_rows.hpp"
#include "output.hpp"
#include "page_origin.hpp"
#include "pcie/link_costs.hpp"
#include "pcie/questions.hpp"
#include "pcie/report.hpp"
#include "profile_file.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::apps {
namespace {

struct PcieOptions : BenchOptions {
  std::string report_file;  ///< empty = no report is written
};

/// The device with its host memory on another NUMA node than the nearest.
Result<std::unique_ptr<Backend>> make_far_device(const Config& config) {
  offload::BackendOptions options = backend_options(config);
  TERRACE_ASSIGN(const auto near, offload::make_backend("cuda", options));
  TERRACE_ASSIGN(const offload::Topology topology, offload::Topology::discover());
  const auto nearest = near.backend->capabilities().host_node;
  const auto far = std::ranges::find_if(topology.nodes(), [&](const offload::NumaNode& node) {
    return nearest && node.index != *nearest && node.memory_bytes > 0;
  });
  if (far == topology.nodes().end()) {
    return fail(Errc::unsupported, "no memory is farther from the device than other");
  }
  options.cuda.numa_node = far->index;
  TERRACE_ASSIGN(auto chosen, offload::make_backend("cuda", options));
  return std::move(chosen.backend);
}

std::vector<bench::Question> questions_of(const Config& config, bool quick) {
  const auto make = [config](const char* name) {
    return [config, name]() -> Result<std::unique_ptr<Backend>> {
      TERRACE_ASSIGN(auto chosen, offload::make_backend(name, backend_options(config)));
      return std::move(chosen.backend);
    };
  };
  const offload::LinkOptions link = backend_options(config).host.link;
  const bool imitated = link.bandwidth_bytes_per_second > 0 || link.latency > Duration{};
  return bench::pcie_questions({.host = make("host"),
                                .device = make("cuda"),
                                .far_device = [config] { return make_far_device(config); },
                                .host_link = imitated ? "imitated" : "memcpy",
                                .quick = quick});
}

/// Name of the device whose link is measured; empty = no device.
std::string device_name() {
  for (const offload::BackendInfo& backend : offload::list_backends()) {
    if (backend.name == "cuda" && backend.available) return backend.reason;
  }
  return {};
}

Status write_profile(const PcieOptions& options, const Config& config, const Machine& machine,
                     std::span<const bench::Row> rows) {
  const auto link = bench::link_costs(rows);
  if (!link) {
    return fail(Errc::invalid_argument,
                "--write-profile needs the rows of copies to the device: leave out --only");
  }
  warn_of_quick_profile(options, "link's");
  return extend_profile(options.profile_file, machine, config.duration("deadline"),
                        [&](MachineProfile& profile) { profile.link = link; });
}

Result<int> bench_pcie(const PcieOptions& options) {
  TERRACE_ASSIGN(const Config config, bench_config(options));
  TERRACE_TRY(
      check_targets({{"--write-profile", options.profile_file}, {"--report", options.report_file}},
                    {{"--config", options.shared.config_file}}));
  std::vector<bench::Question> questions = questions_of(config, options.quick);
  TERRACE_TRY(keep_wanted(options, questions));
  const Machine machine = read_machine(device_name());
  const std::string about = fmt::format("{}, {} cores", machine.cpu, machine.cores);
  if (!options.profile_file.empty()) {
    TERRACE_TRY(profile_to_extend(options.profile_file, machine));
  }
  const std::vector<bench::Row> rows = ask_all(questions, options);
  if (options.shared.json()) {
    print_rows_document("bench pcie", config, machine, rows);
  } else {
    print_out("machine  {}{}\n\n{}", about, quick_note(options.quick), bench::table(rows));
  }
  if (!options.profile_file.empty()) TERRACE_TRY(write_profile(options, config, machine, rows));
  if (!options.report_file.empty()) {
    TERRACE_TRY(replace_file(options.report_file,
                             bench::pcie_page(rows, about, page_origin(options.quick))));
  }
  return std::ranges::any_of(rows, &bench::Row::failed) ? 1 : 0;
}

constexpr std::string_view pcie_words = R"(Rows:
  memcpy                    one piece, named as nvbandwidth names its tests
  host_copy                 one piece on the host's own link, imitated or by memcpy
  kv_scatter, _contiguous   KV rows from all over, or side by side; the last number: a row's bytes
  ce, sm, host              moved by a copy engine, by a kernel of the device, by the host
  bidirectional             both ways at once
  pinned, pageable          host memory from the driver; not locked. Otherwise locked by Terrace
  far                       host memory that is not the nearest to the device
  beside_attention          while attention runs; attention_beside...: attention's time meanwhile
  copy_time                 one small copy from asking to its end; pinned_set_up: locking memory
)";

}  // namespace

void add_bench_pcie(CLI::App& bench, Invocation& invocation) {
  CLI::App* const pcie =
      bench.add_subcommand("pcie", "KV rows across the link between device and host");
  const auto options = std::make_shared<PcieOptions>();
  add_bench_options(*pcie, *options, pcie_words);
  pcie->add_option("--write-profile", options->profile_file,
                   "put the link's bandwidth, latency and switch-over into a machine profile")
      ->option_text("FILE");
  pcie->add_option("--report", options->report_file, "a page with the rates drawn over sizes")
      ->option_text("FILE.html");
  pcie->callback([options, &invocation] {
    invocation = {[options] { return bench_pcie(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
