// Other forms of traces, and traces made to order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// A file to read and one to write, which is there when it is whole.
struct Conversion {
  std::filesystem::path source;
  std::filesystem::path target;
  /// Called with the share of the source that has been read, which never falls.
  std::function<void(double)> progress = {};
};

/// Writes a trace of tokens as one of blocks, smaller and of one block size, without clusters.
/// Where the recorded run cached other units its counters become those that a replay gives, its
/// time and memory those without what looking after the others took. Errors: those of the trace;
/// invalid_argument: it has no tokens.
[[nodiscard]] Status convert_to_blocks(const Conversion& files, std::size_t block_tokens);

/// Writes lines `sequence,layer,step,unit,rows,slots` for other simulators. Where units are renamed
/// they get numbers that no unit of the layer had before.
/// Errors: those of the trace; invalid_argument: units that it cannot serve.
[[nodiscard]] Status convert_to_csv(const Conversion& files, const CacheUnit& unit);

/// The model whose prefixes are imported: what a token weighs.
struct ImportedModel {
  std::string name;
  std::string fingerprint;  ///< of model_fingerprint()
  KvShape shape;
  std::uint64_t weight_bytes = 0;
};

/// Reads Mooncake's JSONL ({"timestamp", "input_length", "output_length", "hash_ids"} a line) as
/// prefix traffic: each request is a step that wants the blocks of its prompt in every layer, 512
/// tokens each, the last one as many as input_length leaves, and has what it missed in memory when
/// it is done. A block is a cluster of the trace. Without a model there is one layer of one head of
/// 64 dimensions: hits are right, bytes and times those of no model.
/// Errors: io_error; corrupt naming the line.
[[nodiscard]] Status import_mooncake(const Conversion& files,
                                     const std::optional<ImportedModel>& model = {});

}  // namespace terrace::tuning
