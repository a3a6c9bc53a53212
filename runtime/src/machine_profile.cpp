#include "terrace/runtime/machine_profile.hpp"

#include <yaml-cpp/yaml.h>

#include <cmath>

#include "terrace/core/read_file.hpp"

namespace terrace {
namespace {

using policies::CostModel;
using policies::Polynomial;

constexpr std::size_t file_bytes_max = std::size_t{1} << 20;
constexpr int profile_version = 1;
constexpr double switch_over_max = 1 << 30;  // bytes

/// The fits of a setting, by their names in the file.
struct CostField {
  const char* name;
  Polynomial CostModel::* fit;
};
constexpr CostField cost_fields[] = {{"compute", &CostModel::compute},
                                     {"offload", &CostModel::offload},
                                     {"kmeans_base", &CostModel::kmeans_base},
                                     {"kmeans_iteration", &CostModel::kmeans_iteration}};

struct ResidualField {
  const char* name;
  double policies::Residuals::* share;
};
constexpr ResidualField residual_fields[] = {{"compute", &policies::Residuals::compute},
                                             {"offload", &policies::Residuals::offload},
                                             {"kmeans", &policies::Residuals::kmeans}};

/// "FILE:LINE", without the line where YAML knows none.
std::string place(std::string_view name, const YAML::Mark& mark) {
  return mark.is_null() ? std::string(name) : fmt::format("{}:{}", name, mark.line + 1);
}

/// Reads one file; every refusal names its line.
class Reader {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  [[nodiscard]] Result<MachineProfile> read(const YAML::Node& root) const {
    if (root.IsNull()) {
      return fail(Errc::invalid_argument,
                  "{}: no machine profile: there is nothing in it; have terrace bench kernels "
                  "--write-profile measure one, into a new file",
                  name_);
    }
    if (!root.IsMap()) return refuse(root, "no machine profile", "write version: 1 and sections");
    MachineProfile profile;
    bool versioned = false;
    for (const auto& entry : root) {
      const std::string section = entry.first.as<std::string>("");
      const YAML::Node& node = entry.second;
      if (section == "version") {
        if (node.as<int>(0) != profile_version) {
          return refuse(node, "written by another version", "measure the machine again");
        }
        versioned = true;
      } else if (section == "date") {
        profile.date = node.as<std::string>("");
      } else if (section == "cpu") {
        profile.cpu = node.as<std::string>("");
      } else if (section == "isa") {
        profile.isa = node.as<std::string>("");
      } else if (section == "compute") {
        TERRACE_TRY(read_costs(node, profile));
      } else if (section == "host") {
        TERRACE_TRY(read_rates(node, profile));
      } else if (section == "link") {
        TERRACE_ASSIGN(profile.link, read_link(node));
      } else {
        return refuse(entry.first, "unknown section '" + section + "'", "take it out");
      }
    }
    if (!versioned) return refuse(root, "no version", "measure the machine again");
    return profile;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(const YAML::Node& node, std::string_view what,
                                             std::string_view advice) const {
    return fail(Errc::invalid_argument, "{}: {}; {}", place(name_, node.Mark()), what, advice);
  }

  [[nodiscard]] Result<double> figure(const YAML::Node& node) const {
    const double value = node.as<double>(-1);
    if (!(value >= 0) || !std::isfinite(value)) {
      return refuse(node, "no figure of zero or more", "measure the machine again");
    }
    return value;
  }

  [[nodiscard]] Result<Polynomial> fit(const YAML::Node& node) const {
    Polynomial polynomial;
    if (!node.IsSequence() || node.size() != polynomial.c.size()) {
      return refuse(node, "a fit is a list of three figures", "measure the machine again");
    }
    for (std::size_t i = 0; i < node.size(); ++i) {
      TERRACE_ASSIGN(polynomial.c[i], figure(node[i]));
    }
    return polynomial;
  }

  [[nodiscard]] Status read_costs(const YAML::Node& list, MachineProfile& profile) const {
    if (!list.IsSequence()) return refuse(list, "compute is no list", "measure the machine again");
    for (const YAML::Node& entry : list) {
      if (!entry.IsMap() || !entry["setting"]) {
        return refuse(entry, "fits without a setting", "measure the machine again");
      }
      CostModel costs;
      for (const CostField& field : cost_fields) {
        const YAML::Node node = entry[field.name];
        if (!node) {
          return refuse(entry, fmt::format("no fit '{}'", field.name), "measure the machine again");
        }
        TERRACE_ASSIGN(costs.*field.fit, fit(node));
      }
      for (const ResidualField& field : residual_fields) {
        const YAML::Node node = entry["residuals"] ? entry["residuals"][field.name] : YAML::Node();
        if (!node || node.IsNull()) {
          return refuse(entry, fmt::format("no residual '{}'", field.name),
                        "measure the machine again");
        }
        TERRACE_ASSIGN(costs.residuals.*field.share, figure(node));
      }
      profile.compute[entry["setting"].as<std::string>("")] = costs;
    }
    return {};
  }

  [[nodiscard]] Status read_rates(const YAML::Node& map, MachineProfile& profile) const {
    if (!map.IsMap()) return refuse(map, "host is no map", "measure the machine again");
    for (const auto& entry : map) {
      TERRACE_ASSIGN(profile.host[entry.first.as<std::string>("")], figure(entry.second));
    }
    return {};
  }

  [[nodiscard]] Result<LinkCosts> read_link(const YAML::Node& map) const {
    LinkCosts link;
    if (!map.IsMap() || !map["bandwidth"] || !map["latency"]) {
      return refuse(map, "link needs bandwidth and latency", "measure the machine again");
    }
    TERRACE_ASSIGN(link.bandwidth, figure(map["bandwidth"]));
    TERRACE_ASSIGN(link.latency, figure(map["latency"]));
    if (map["switch_over"]) {
      TERRACE_ASSIGN(link.switch_over, figure(map["switch_over"]));
      if (link.switch_over > switch_over_max) {
        return refuse(map["switch_over"], "switch_over is larger than any copy",
                      "measure it again");
      }
    }
    if (link.bandwidth == 0) return refuse(map, "a link of no bandwidth", "measure it again");
    return link;
  }

  std::string_view name_;
};

}  // namespace

Result<MachineProfile> MachineProfile::parse(std::string_view yaml, std::string_view name) {
  if (yaml.find('\0') != std::string_view::npos) {
    return fail(Errc::invalid_argument, "{}: has zero bytes; is this a machine profile?", name);
  }
  try {
    return Reader(name).read(YAML::Load(std::string(yaml)));
  } catch (const YAML::Exception& error) {
    return fail(Errc::invalid_argument, "{}: this is no YAML: {}", place(name, error.mark),
                error.msg);
  }
}

Result<MachineProfile> MachineProfile::read(const std::string& path) {
  TERRACE_ASSIGN(const std::string text, read_file(path, file_bytes_max));
  return parse(text, path);
}

std::string MachineProfile::to_yaml() const {
  YAML::Emitter out;
  out.SetDoublePrecision(17);
  out << YAML::BeginMap << YAML::Key << "version" << YAML::Value << profile_version;
  out << YAML::Key << "date" << YAML::Value << date;
  out << YAML::Key << "cpu" << YAML::Value << cpu << YAML::Key << "isa" << YAML::Value << isa;
  if (!compute.empty()) {
    out << YAML::Key << "compute" << YAML::Value << YAML::BeginSeq;
    for (const auto& [setting, costs] : compute) {
      out << YAML::BeginMap << YAML::Key << "setting" << YAML::Value << setting;
      for (const CostField& field : cost_fields) {
        out << YAML::Key << field.name << YAML::Value << YAML::Flow << YAML::BeginSeq;
        for (const double c : (costs.*field.fit).c) out << c;
        out << YAML::EndSeq;
      }
      out << YAML::Key << "residuals" << YAML::Value << YAML::Flow << YAML::BeginMap;
      for (const ResidualField& field : residual_fields) {
        out << YAML::Key << field.name << YAML::Value << costs.residuals.*field.share;
      }
      out << YAML::EndMap << YAML::EndMap;
    }
    out << YAML::EndSeq;
  }
  if (!host.empty()) {
    out << YAML::Key << "host" << YAML::Value << YAML::BeginMap;
    for (const auto& [row, rate] : host) out << YAML::Key << row << YAML::Value << rate;
    out << YAML::EndMap;
  }
  if (link) {
    out << YAML::Key << "link" << YAML::Value << YAML::BeginMap << YAML::Key << "bandwidth"
        << YAML::Value << link->bandwidth << YAML::Key << "latency" << YAML::Value << link->latency;
    if (link->switch_over > 0) {
      out << YAML::Key << "switch_over" << YAML::Value << link->switch_over;
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + '\n';
}

}  // namespace terrace
