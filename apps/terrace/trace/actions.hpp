// The actions of `terrace trace`, and the options of all of them.
#pragma once

#include <string>

#include "command.hpp"
#include "progress.hpp"
#include "terrace/tuning/import.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::apps {

struct TraceOptions {
  SharedOptions shared;
  std::string file;
  std::string model;   ///< empty = not compared
  std::string target;  ///< convert
  std::string from = "terrace";
  tuning::ObjectOptions objects;
  std::string to;  ///< empty = csv where the target is called that, else blocks
};

inline constexpr KeyFlag block_tokens_flag{"--block-tokens", "kv.block_tokens",
                                           "cut tokens into blocks of this size"};

inline constexpr std::array convert_flags{
    KeyFlag{"--cache-granularity", "cache.granularity", "of csv: its unit: block, cluster or row"},
    KeyFlag{block_tokens_flag.flag, block_tokens_flag.key,
            "cut tokens into blocks of this size; of mooncake: what an id stands for [512]"},
};

/// Refuses a trace of another model than the one that --model names, if it names one: a damaged
/// file is no wrong usage, that is.
Status check_trace_model(const TraceOptions& options, const tuning::TraceHead& head);

/// Returns the unit that the live run cached, or what the config says instead.
tuning::CacheUnit chosen_unit(const Config& config, const tuning::TraceHead& head);

/// Prints, for people, that replaying is approximate where the run lost something; else nothing.
void print_losses(const tuning::TraceEnd& end);

/// Reads a file to its end, checking every byte, and calls act(record) for every record.
template <typename Act>
Result<tuning::TraceEnd> each_record(const std::string& file, Progress& progress, const char* what,
                                     Act&& act) {
  TERRACE_ASSIGN(auto reader, tuning::TraceReader::open(file));
  TERRACE_TRY(reader.for_each([&](const tuning::TraceRecord& record) {
    act(record);
    progress.show(file, what, reader.progress());
  }));
  progress.clear();
  return reader.end();
}

Result<int> trace_info(const TraceOptions& options);
Result<int> trace_replay(const TraceOptions& options);
Result<int> trace_convert(const TraceOptions& options);

}  // namespace terrace::apps
