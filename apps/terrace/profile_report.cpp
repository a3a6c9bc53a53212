#include "profile_report.hpp"

#include <fmt/core.h>

#include <array>

#include "machine.hpp"
#include "output.hpp"

namespace terrace::apps {
namespace {

/// Lengths at which a plan is shown.
constexpr std::array<std::size_t, 3> plan_lengths{4096, 32'768, 131'072};

std::string polynomial_text(const policies::Polynomial& fit) {
  return fmt::format("{:.3g} + {:.3g} n + {:.3g} n²", fit.c[0], fit.c[1], fit.c[2]);
}

/// The margin that a plan leaves free is a tenth: beyond this a plan says little.
constexpr double loose_share = 0.25;

policies::IterationPlanner planner_of(const policies::CostModel& costs, const Config& config) {
  return {costs,
          {.iterations_min = config.integer("planning.iterations_min"),
           .iterations_max = config.integer("planning.iterations_max")}};
}

}  // namespace

std::string costs_text(const policies::CostModel& costs) {
  const policies::Residuals& off = costs.residuals;
  return fmt::format(
      "  T_compute(n)   = {} s, samples within {:.1f} %\n"
      "  T_offload(n)   = {} s, samples within {:.1f} %\n"
      "  T_kmeans(n, i) = {} + i ({}) s, samples within {:.1f} %\n",
      polynomial_text(costs.compute), 100 * off.compute, polynomial_text(costs.offload),
      100 * off.offload, polynomial_text(costs.kmeans_base),
      polynomial_text(costs.kmeans_iteration), 100 * off.kmeans);
}

void warn_of_loose_fits(std::string_view setting, const policies::CostModel& costs, bool quiet) {
  std::string loose;
  const auto take = [&loose](const char* fit, double share) {
    if (share <= loose_share) return;
    loose += fmt::format("{}{} within {:.0f} %", loose.empty() ? "" : ", ", fit, 100 * share);
  };
  take("T_compute", costs.residuals.compute);
  take("T_offload", costs.residuals.offload);
  take("T_kmeans", costs.residuals.kmeans);
  if (quiet || loose.empty()) return;
  warn(
      "{}: fits are loose, and so are plans made by them: {} of its samples; measure "
      "again while the machine is idle, with terrace bench kernels --write-profile FILE",
      setting, loose);
}

std::string profile_text(const MachineProfile& profile, const Config& config) {
  std::string text = profile.date.empty() ? fmt::format("profile of {}\n", profile.cpu)
                                          : fmt::format("profile of {}, {}, measured {}\n",
                                                        profile.cpu, profile.isa, profile.date);
  const Machine machine = read_machine();
  if (!profile.date.empty() && !is_of(profile, machine)) {
    text += fmt::format("not of this machine, {} with {}: not used for plans\n", machine.cpu,
                        machine.isa);
  }
  if (profile.link) {
    text += fmt::format("link of {:.1f} GB/s, copies start after {:.1f} us\n",
                        profile.link->bandwidth / 1e9, profile.link->latency * 1e6);
    if (profile.link->switch_over > 0) {
      text +=
          fmt::format("copies of less than {:.0f} B go by a kernel\n", profile.link->switch_over);
    }
  }
  if (profile.nvme) {
    text += fmt::format(
        "nvme read at {:.2f} GB/s, written at {:.2f} GB/s, a page after {:.0f} us\n",
        profile.nvme->read / 1e9, profile.nvme->write / 1e9, profile.nvme->latency * 1e6);
  }
  for (const auto& [setting, costs] : profile.compute) {
    text += fmt::format("{}\n{}", setting, costs_text(costs));
    for (const std::size_t tokens : plan_lengths) {
      text += fmt::format("  {} iterations at {} tokens\n", planner_of(costs, config).plan(tokens),
                          tokens);
    }
  }
  return text;
}

Json costs_object(const policies::CostModel& costs) {
  return {{"compute", costs.compute.c},
          {"offload", costs.offload.c},
          {"kmeans_base", costs.kmeans_base.c},
          {"kmeans_iteration", costs.kmeans_iteration.c},
          {"residuals",
           {{"compute", costs.residuals.compute},
            {"offload", costs.residuals.offload},
            {"kmeans", costs.residuals.kmeans}}}};
}

Json profile_object(const MachineProfile& profile, const Config& config) {
  Json settings = Json::array();
  for (const auto& [setting, costs] : profile.compute) {
    Json plans = Json::array();
    for (const std::size_t tokens : plan_lengths) {
      plans.push_back({{"tokens", tokens}, {"iterations", planner_of(costs, config).plan(tokens)}});
    }
    settings.push_back({{"setting", setting}, {"costs", costs_object(costs)}, {"plans", plans}});
  }
  Json link;
  if (profile.link) {
    link = {{"bandwidth", profile.link->bandwidth},
            {"latency", profile.link->latency},
            {"switch_over", profile.link->switch_over}};
  }
  Json nvme;
  if (profile.nvme) {
    nvme = {{"read", profile.nvme->read},
            {"write", profile.nvme->write},
            {"latency", profile.nvme->latency}};
  }
  return {{"cpu", profile.cpu}, {"isa", profile.isa}, {"date", profile.date},
          {"link", link},       {"nvme", nvme},       {"settings", settings}};
}

}  // namespace terrace::apps
