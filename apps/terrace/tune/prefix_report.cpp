#include "tune/prefix_report.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "machine.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::apps {
namespace {

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string table_text(const PrefixReport& report) {
  std::string text = fmt::format("{:<13}", "sizes");
  for (const tuning::PrefixTier& tier : report.request.tiers) {
    text += fmt::format(" {:>9} {:>9} {:>7}", tier.name, "used", "hit %");
  }
  text += fmt::format(" {:>8} {:>11} {:>7}\n", "missed %", "saved s", "saved %");
  for (const tuning::PrefixChoice& choice : report.result.choices) {
    text += fmt::format("{:<13}", choice.name);
    const std::uint64_t tokens = choice.figures.tokens;
    for (std::size_t tier = 0; tier < choice.bytes.size(); ++tier) {
      const tuning::PrefixTierFigures& its = choice.figures.tiers[tier];
      text += fmt::format(" {:>9} {:>9} {:>7.2f}", size_text(choice.bytes[tier]),
                          format_size(its.chunks_most * report.result.chunk_bytes),
                          100 * share(its.hit_tokens, tokens));
    }
    text +=
        fmt::format(" {:>8.2f} {:>11.1f} {:>7.2f}\n",
                    100 * share(choice.figures.missed_tokens, tokens), choice.all_saved_seconds(),
                    100 * choice.all_saved_seconds() / report.result.prefill_seconds);
  }
  return text;
}

/// Returns a size as a config has it: no byte more or less.
std::string exact_size(std::uint64_t bytes) {
  const std::string words = format_size(bytes);
  const auto read = parse_size(words);
  return read && *read == bytes ? words : std::to_string(bytes);
}

Json choice_object(const PrefixReport& report, const tuning::PrefixChoice& choice) {
  const std::uint64_t tokens = choice.figures.tokens;
  Json tiers = Json::array();
  for (std::size_t tier = 0; tier < choice.bytes.size(); ++tier) {
    const tuning::PrefixTierFigures& its = choice.figures.tiers[tier];
    const std::uint64_t bytes = choice.bytes[tier];
    tiers.push_back({{"tier", report.request.tiers[tier].name},
                     {"bytes", bytes == tuning::unlimited_bytes ? Json() : Json(bytes)},
                     {"used_bytes", its.chunks_most * report.result.chunk_bytes},
                     {"hit_tokens", its.hit_tokens},
                     {"hit_ratio", share(its.hit_tokens, tokens)},
                     {"evicted_chunks", its.evicted},
                     {"saved_seconds", choice.saved_seconds[tier]}});
  }
  return {{"sizes", choice.name},
          {"tiers", tiers},
          {"hit_tokens", choice.figures.hit_tokens()},
          {"missed_tokens", choice.figures.missed_tokens},
          {"hit_ratio", share(choice.figures.hit_tokens(), tokens)},
          {"refused_chunks", choice.figures.refused_chunks},
          {"saved_seconds", choice.all_saved_seconds()},
          {"saved_ratio", choice.all_saved_seconds() / report.result.prefill_seconds}};
}

}  // namespace

std::string size_text(std::uint64_t bytes) {
  if (bytes == tuning::unlimited_bytes) return "no limit";
  return bytes == 0 ? "none" : format_size(bytes);
}

std::string prefix_head(const PrefixReport& report) {
  const tuning::PrefixTuneResult& result = report.result;
  const tuning::PrefixFigures& figures = result.asked().figures;
  std::string text = fmt::format(
      "trace    {} requests of {} tokens; {} have a time, {} overlap with others\n"
      "chunks   {} tokens, {}; {} a token\nprefill  {:.0f} tokens a second, {:.0f} s for all\n"
      "loads   ",
      figures.requests, figures.tokens, result.timed_requests, figures.overlapping,
      result.head.block_tokens, format_size(result.chunk_bytes),
      format_size(report.request.token_bytes), report.request.prefill_tokens_per_second,
      result.prefill_seconds);
  for (const PrefixTierSetting& each : report.tiers) {
    text += fmt::format("{} {} at {:.1f} GB/s ({})", &each == report.tiers.data() ? "" : ",",
                        each.tier.name, each.tier.load_bytes_per_second / 1e9, each.rate_source);
  }
  return text + "\n";
}

std::string together_text(const PrefixReport& report) {
  const auto alone =
      std::ranges::find(report.result.choices, "nvme_alone", &tuning::PrefixChoice::name);
  if (alone == report.result.choices.end()) return {};
  const tuning::PrefixChoice& asked = report.result.asked();
  const auto percent = [](const tuning::PrefixChoice& choice) {
    return 100 * share(choice.figures.hit_tokens(), choice.figures.tokens);
  };
  return fmt::format(
      "Memory has copies of chunks of the file: it saves time, and finds no more tokens. These two "
      "find {:.2f} % and save {:.0f} s; a file of {} alone finds {:.2f} % and saves {:.0f} s.\n",
      percent(asked), asked.all_saved_seconds(), format_size(alone->bytes.back()), percent(*alone),
      alone->all_saved_seconds());
}

Result<std::string> prefix_config(const PrefixReport& report, const tuning::PrefixChoice& choice,
                                  const Config& config) {
  const std::size_t chunk = report.result.head.block_tokens;
  const std::size_t block = config.integer("kv.block_tokens");
  if (chunk % block != 0) {
    return fail(Errc::invalid_argument,
                "chunks of the trace have {} tokens, and no runtime has chunks that are no whole "
                "blocks of {}",
                chunk, block);
  }
  std::string text = fmt::format(
      "# Sizes of tiers for stored prefixes, of {}.\n# For terraced and for engines: name the "
      "file by tier.nvme.path.\ntier.chunk_tokens: {}\n",
      shown(report.request.trace.string()), chunk);
  for (std::size_t tier = 0; tier < report.tiers.size(); ++tier) {
    const PrefixTierSetting& its = report.tiers[tier];
    const bool as_asked = choice.bytes[tier] == its.tier.bytes;
    text += fmt::format("{}: {}\n", its.key,
                        as_asked ? report.sizes.text(its.key) : exact_size(choice.bytes[tier]));
  }
  return text;
}

std::string prefix_text(const PrefixReport& report) {
  return fmt::format("{}\n{}\n{}\n{}", prefix_head(report), table_text(report),
                     tuning::recommend(report.request, report.result), together_text(report));
}

Json prefix_document(const PrefixReport& report, const Config& config) {
  const tuning::PrefixTuneResult& result = report.result;
  Json document = document_head("tune", config, read_machine());
  document["requests"] = {{"count", result.asked().figures.requests},
                          {"timed", result.timed_requests},
                          {"overlapping", result.asked().figures.overlapping},
                          {"tokens", result.asked().figures.tokens}};
  document["chunk"] = {{"tokens", result.head.block_tokens}, {"bytes", result.chunk_bytes}};
  document["prefill"] = {{"tokens_per_second", report.request.prefill_tokens_per_second},
                         {"seconds", result.prefill_seconds}};
  document["loads"] = Json::array();
  for (const PrefixTierSetting& each : report.tiers) {
    document["loads"].push_back({{"tier", each.tier.name},
                                 {"bytes_per_second", each.tier.load_bytes_per_second},
                                 {"source", each.rate_source}});
  }
  document["rows"] = Json::array();
  for (const tuning::PrefixChoice& choice : result.choices) {
    document["rows"].push_back(choice_object(report, choice));
  }
  document["recommendation"] = tuning::recommend(report.request, result);
  return document;
}

}  // namespace terrace::apps
