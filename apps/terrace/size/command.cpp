// `terrace size`: the memory that sequences take in each tier, how many fit, and what binds.
#include "command.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "config_check.hpp"
#include "document.hpp"
#include "model_shapes.hpp"
#include "output.hpp"
#include "size/sizing.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::apps {
namespace {

constexpr std::array size_flags{
    KeyFlag{"--policy", "retrieval.policy", "policies to size, separated by commas"},
    KeyFlag{"--budget", "retrieval.budget", "tokens attended per step: 0.1, 2048 or mass:0.95"},
    KeyFlag{"--cache-tokens", "cache.tokens", "cache capacity in tokens per layer, all sequences"},
    KeyFlag{"--placement", "placement", "offload or resident_first"},
    KeyFlag{"--device-memory", "device.memory", "what the device has beside weights: 60GiB"},
    KeyFlag{"--host-memory", "host.memory", "what the host has for rows and indexes: 256GiB"},
    KeyFlag{"--kv-dtype", "kv.dtype", "element type of stored keys and values: f16, bf16 or f32"},
};

constexpr std::size_t sized_tokens_max = std::size_t{1} << 30;
constexpr std::size_t sized_sequences_max = std::size_t{1} << 20;

constexpr const char* size_columns = R"(
Columns:
  device    sinks, windows, indexes, selections and steps of all sequences, and their cache
  cache     the part of it that holds rows for later steps: less is slower, and as right
  host      every row once, and the indexes (policy full: nothing); with a file (tier.nvme.path),
            rows beyond three quarters of host.memory go there
  fits      sequences that the limits of device (d), host (h) and file (f) have room for
  a step    bytes of index that a token scans, and of rows that it selects: what the cache does not
            have of these comes over the link
Weights and activations of the model are not counted: give --device-memory what they leave.
)";

struct SizeOptions {
  SharedOptions shared;
  std::string shape = named_shapes().front().name;
  std::string model;
  std::size_t context = 131'072;
  std::size_t sequences = 1;
  std::size_t prefill_chunk = 512;
};

Status check_counts(const SizeOptions& options) {
  TERRACE_TRY(check_count("--context", options.context, sized_tokens_max));
  TERRACE_TRY(check_count("--sequences", options.sequences, sized_sequences_max));
  return check_count("--prefill-chunk", options.prefill_chunk, sized_tokens_max);
}

Json optional_number(const std::optional<std::size_t>& number) {
  return number ? Json(*number) : Json();
}

Json tier_object(const TierSize& size) {
  return {{"needed_bytes", size.needed},
          {"limit_bytes", optional_number(size.limit)},
          {"fits", optional_number(size.fits)}};
}

Json row_of(const Sizing& sizing, const SizeQuery& query) {
  const MemoryNeed& need = sizing.need;
  const std::vector<Tier> binds = sizing.binding();
  return {{"policy", sizing.policy},
          {"tokens", query.tokens},
          {"sequences", query.sequences},
          {"device", tier_object(sizing.device)},
          {"host", tier_object(sizing.host)},
          {"nvme", sizing.nvme.limit ? tier_object(sizing.nvme) : Json()},
          {"binds", binds.empty() ? Json() : Json(to_string(binds.front()))},
          {"sequence",
           {{"device_held", need.device_held},
            {"device_cache", need.device_cache},
            {"device_step", need.device_step},
            {"device_shared", need.device_shared},
            {"host_rows", need.host_rows},
            {"host_index", need.host_index},
            {"host_rest", need.host_rest}}},
          {"step",
           {{"selected_tokens", sizing.selected_tokens},
            {"index_bytes", sizing.step_index_bytes},
            {"selected_bytes", sizing.step_selected_bytes}}}};
}

std::string fits_text(const Sizing& sizing) {
  const auto text = [](const TierSize& size) {
    return size.fits ? fmt::format("{}", *size.fits) : std::string("any");
  };
  const std::string upper = text(sizing.device) + " / " + text(sizing.host);
  return sizing.nvme.fits ? upper + " / " + text(sizing.nvme) : upper;
}

void print_table(const std::vector<Sizing>& sizings, const SizeQuery& query) {
  const bool has_file = sizings.front().nvme.limit.has_value();
  print_out("{:<12} {:>10} {:>10} {:>10} {:>14} {:>10} {:>10}\n", "policy", "device", "cache",
            "host", has_file ? "fits d / h / f" : "fits d / h", "step index", "step rows");
  for (const Sizing& sizing : sizings) {
    print_out("{:<12} {:>10} {:>10} {:>10} {:>14} {:>10} {:>10}\n", sizing.policy,
              format_size(sizing.device.needed),
              format_size(query.sequences * sizing.need.device_cache),
              format_size(sizing.host.needed), fits_text(sizing),
              format_size(sizing.step_index_bytes), format_size(sizing.step_selected_bytes));
  }
}

/// The key that limits a tier.
std::string_view limit_name(Tier tier) noexcept {
  if (tier == Tier::nvme) return "tier.nvme.bytes";
  return tier == Tier::device ? "device.memory" : "host.memory";
}

std::string_view way_out(const Sizing& sizing, Tier binds) noexcept {
  if (binds == Tier::nvme) return "raise tier.nvme.bytes";
  if (binds == Tier::host) {
    return sizing.nvme.limit ? "raise host.memory: indexes have three quarters of it beside a file"
                             : "name a file for the rest, tier.nvme.path";
  }
  if (sizing.keeps_everything) return "choose a policy that keeps rows on the host";
  return "lower cache.tokens, then retrieval.budget; or set index.residency to host";
}

/// Says of a policy what stands in the way, and what to change.
void print_advice(const Sizing& sizing, const SizeQuery& query) {
  const std::vector<Tier> binds = sizing.binding();
  if (binds.empty()) return;
  const TierSize& tier = sizing.of(binds.front());
  if (tier.is_enough(query.sequences)) {
    std::vector<std::string_view> full;
    full.reserve(binds.size());
    for (const Tier one : binds) full.push_back(limit_name(one));
    print_out("{}: {} sequences fit; full first: {}\n", sizing.policy, *tier.fits,
              fmt::join(full, ", "));
    return;
  }
  print_out("{}: {} of {} sequences fit, {} lacks {}: {}\n", sizing.policy, *tier.fits,
            query.sequences, limit_name(binds.front()), format_size(tier.needed - *tier.limit),
            way_out(sizing, binds.front()));
}

/// Returns the first policy with room for so many sequences, or null.
const Sizing* find_enough(const std::vector<Sizing>& sizings, std::size_t sequences) {
  const auto enough = std::ranges::find_if(
      sizings, [&](const Sizing& sizing) { return sizing.is_enough(sequences); });
  return enough == sizings.end() ? nullptr : &*enough;
}

/// The settings of the first policy with room for all sequences, or for one; nothing where there is
/// room for none.
void print_config(const std::vector<Sizing>& sizings, const SizeQuery& query,
                  const Config& config) {
  const Sizing* shown = find_enough(sizings, query.sequences);
  if (shown == nullptr) shown = find_enough(sizings, 1);
  if (shown == nullptr) return;
  print_out("\n# --config FILE\nretrieval:\n  policy: {}\n  budget: {}\n", shown->policy,
            config.text("retrieval.budget"));
  for (const char* const tier : {"device", "host"}) {
    const std::string& limit = config.text(std::string(tier) + ".memory");
    if (is_set(config, std::string(tier) + ".memory"))
      print_out("{}:\n  memory: {}\n", tier, limit);
  }
  if (!config.text("tier.nvme.path").empty()) {
    print_out("tier.nvme:\n  path: {}\n  bytes: {}\n", config.text("tier.nvme.path"),
              config.text("tier.nvme.bytes"));
  }
  if (is_set(config, "cache.tokens")) {
    print_out("cache:\n  tokens: {}\n", config.text("cache.tokens"));
  }
}

void print_sizes(const std::vector<Sizing>& sizings, const SizeQuery& query,
                 const SizeOptions& options, const Config& config) {
  const KvShape& shape = query.shape;
  print_out("{}: {} layers, {} KV heads of {}, {}; {} x {} tokens, {} of rows each\n\n",
            options.model.empty() ? options.shape : options.model, shape.layers, shape.kv_heads,
            shape.head_dim, to_string(shape.dtype), query.sequences, query.tokens,
            format_size(query.tokens * shape.layers * shape.token_bytes()));
  print_table(sizings, query);
  print_out("\n");
  for (const Sizing& sizing : sizings) print_advice(sizing, query);
  print_config(sizings, query, config);
}

Result<int> run_size(const SizeOptions& options) {
  TERRACE_TRY(check_counts(options));
  TERRACE_ASSIGN(Config config, resolve_config(options.shared));
  TERRACE_ASSIGN(const std::vector<std::string> policies,
                 split_names("--policy", config.text("retrieval.policy")));
  SizeQuery query{.tokens = options.context,
                  .sequences = options.sequences,
                  .step_tokens = options.prefill_chunk};
  TERRACE_ASSIGN(query.shape,
                 find_shape(options.shape, options.model, *parse_dtype(config.text("kv.dtype"))));
  std::vector<Sizing> sizings;
  for (const std::string& policy : policies) {
    TERRACE_TRY(config.set("retrieval.policy", policy, {ConfigOrigin::flag, "--policy"}));
    TERRACE_TRY(check_config(config));
    TERRACE_ASSIGN(Sizing sizing, size_policy(config, query));
    sizings.push_back(std::move(sizing));
  }
  if (!options.shared.json()) {
    print_sizes(sizings, query, options, config);
    return 0;
  }
  Json document = document_head("size", config, read_machine());
  document["shape"] = {{"name", options.model.empty() ? options.shape : options.model},
                       {"layers", query.shape.layers},
                       {"query_heads", query.shape.query_heads},
                       {"kv_heads", query.shape.kv_heads},
                       {"head_dim", query.shape.head_dim},
                       {"dtype", to_string(query.shape.dtype)}};
  document["rows"] = Json::array();
  for (const Sizing& sizing : sizings) document["rows"].push_back(row_of(sizing, query));
  print_document(document);
  return 0;
}

}  // namespace

void add_size_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const command =
      program.add_subcommand("size", "say what sequences take in each tier, and how many fit");
  const auto options = std::make_shared<SizeOptions>();
  CLI::Option* const shape = command->add_option(
      "--shape", options->shape, fmt::format("{} [{}]", shape_names(), options->shape));
  shape->option_text("NAME");
  command->add_option("--model", options->model, "folder whose config.json has the shape")
      ->excludes(shape)
      ->option_text("DIR");
  add_count(*command, "--context", options->context, "tokens of a sequence with output [131072]");
  add_count(*command, "--sequences", options->sequences, "sequences that decode together [1]");
  add_count(*command, "--prefill-chunk", options->prefill_chunk,
            "tokens of a prompt's piece [512]");
  add_key_flags(*command, size_flags, options->shared);
  add_shared_options(*command, options->shared);
  command->footer(size_columns);
  command->callback([options, &invocation] {
    invocation = {[options] { return run_size(*options); }, options->shared.verbose};
  });
}

}  // namespace terrace::apps
