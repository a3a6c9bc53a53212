#include "terrace/runtime/machine_profile.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <set>

#include "config/yaml_text.hpp"
#include "terrace/core/config.hpp"
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

struct NvmeField {
  const char* name;
  double NvmeCosts::* figure;
};
constexpr NvmeField nvme_fields[] = {
    {"read", &NvmeCosts::read}, {"write", &NvmeCosts::write}, {"latency", &NvmeCosts::latency}};

struct TextField {
  const char* name;
  std::string MachineProfile::* text;
};
constexpr TextField text_fields[] = {
    {"date", &MachineProfile::date}, {"cpu", &MachineProfile::cpu}, {"isa", &MachineProfile::isa}};

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
    TERRACE_TRY(
        check_fields(root, {"version", "date", "cpu", "isa", "compute", "host", "link", "nvme"}));
    if (!root["version"]) return refuse(root, "no version", "measure the machine again");
    if (root["version"].as<int>(0) != profile_version) {
      return refuse(root["version"], "written by another version", "measure the machine again");
    }
    MachineProfile profile;
    for (const TextField& field : text_fields) {
      if (const YAML::Node node = root[field.name]) {
        TERRACE_ASSIGN(profile.*field.text, text(node));
      }
    }
    if (root["compute"]) TERRACE_TRY(read_costs(root["compute"], profile));
    if (root["host"]) TERRACE_TRY(read_rates(root["host"], profile));
    if (root["link"]) {
      TERRACE_ASSIGN(profile.link, read_link(root["link"]));
    }
    if (root["nvme"]) {
      TERRACE_ASSIGN(profile.nvme, read_nvme(root["nvme"]));
    }
    return profile;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(const YAML::Node& node, std::string_view what,
                                             std::string_view advice) const {
    return fail(Errc::invalid_argument, "{}: {}; {}", yaml_place(name_, node.Mark()), what, advice);
  }

  [[nodiscard]] Result<std::string> text(const YAML::Node& node) const {
    if (!node.IsScalar()) return refuse(node, "no text", "write one word or text, in quotes");
    return node.Scalar();
  }

  /// Checks that each key of a map is a text and there once, and one of `known` unless that is
  /// empty.
  [[nodiscard]] Status check_fields(const YAML::Node& map,
                                    std::initializer_list<std::string_view> known) const {
    std::set<std::string> found;
    for (const auto& entry : map) {
      TERRACE_ASSIGN(const std::string name, text(entry.first));
      if (known.size() > 0 && std::ranges::find(known, name) == known.end()) {
        return refuse(entry.first, fmt::format("unknown field '{}'", shown(name)), "take it out");
      }
      if (!found.insert(name).second) {
        return refuse(entry.first, fmt::format("a second '{}'", shown(name)), "keep one");
      }
    }
    return {};
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
      TERRACE_ASSIGN(const std::string setting, text(entry["setting"]));
      TERRACE_ASSIGN(const CostModel costs, read_fits(entry));
      if (!profile.compute.emplace(setting, costs).second) {
        return refuse(entry, fmt::format("a second '{}'", shown(setting)), "keep one");
      }
    }
    return {};
  }

  [[nodiscard]] Result<CostModel> read_fits(const YAML::Node& entry) const {
    TERRACE_TRY(check_fields(
        entry, {"setting", "compute", "offload", "kmeans_base", "kmeans_iteration", "residuals"}));
    CostModel costs;
    for (const CostField& field : cost_fields) {
      const YAML::Node node = entry[field.name];
      if (!node) {
        return refuse(entry, fmt::format("no fit '{}'", field.name), "measure the machine again");
      }
      TERRACE_ASSIGN(costs.*field.fit, fit(node));
    }
    const YAML::Node residuals = entry["residuals"];
    if (!residuals || !residuals.IsMap()) {
      return refuse(entry, "no residuals", "measure the machine again");
    }
    TERRACE_TRY(check_fields(residuals, {"compute", "offload", "kmeans"}));
    for (const ResidualField& field : residual_fields) {
      const YAML::Node node = residuals[field.name];
      if (!node) {
        return refuse(entry, fmt::format("no residual '{}'", field.name),
                      "measure the machine again");
      }
      TERRACE_ASSIGN(costs.residuals.*field.share, figure(node));
    }
    return costs;
  }

  [[nodiscard]] Status read_rates(const YAML::Node& map, MachineProfile& profile) const {
    if (!map.IsMap()) return refuse(map, "host is no map", "measure the machine again");
    TERRACE_TRY(check_fields(map, {}));
    for (const auto& entry : map) {
      TERRACE_ASSIGN(profile.host[entry.first.Scalar()], figure(entry.second));
    }
    return {};
  }

  [[nodiscard]] Result<LinkCosts> read_link(const YAML::Node& map) const {
    LinkCosts link;
    if (!map.IsMap() || !map["bandwidth"] || !map["latency"]) {
      return refuse(map, "link needs bandwidth and latency", "measure the machine again");
    }
    TERRACE_TRY(check_fields(map, {"bandwidth", "latency", "switch_over"}));
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

  [[nodiscard]] Result<NvmeCosts> read_nvme(const YAML::Node& map) const {
    NvmeCosts nvme;
    if (!map.IsMap()) return refuse(map, "nvme is no map", "measure the machine again");
    std::size_t known = 0;
    for (const NvmeField& field : nvme_fields) {
      if (!map[field.name]) continue;
      TERRACE_ASSIGN(nvme.*field.figure, figure(map[field.name]));
      ++known;
    }
    TERRACE_TRY(check_fields(map, {"read", "write", "latency"}));
    if (known < std::size(nvme_fields)) {
      return refuse(map, "nvme needs read, write and latency", "measure the machine again");
    }
    if (nvme.read == 0 || nvme.write == 0) {
      return refuse(map, "a file that is never read or written", "measure it again");
    }
    return nvme;
  }

  std::string_view name_;
};

}  // namespace

Result<MachineProfile> MachineProfile::parse(std::string_view yaml, std::string_view name) {
  TERRACE_ASSIGN(const YAML::Node root, read_yaml(yaml, name));
  return Reader(name).read(root);
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
  if (nvme) {
    out << YAML::Key << "nvme" << YAML::Value << YAML::BeginMap;
    for (const NvmeField& field : nvme_fields) {
      out << YAML::Key << field.name << YAML::Value << (*nvme).*field.figure;
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
  return std::string(out.c_str()) + '\n';
}

}  // namespace terrace
