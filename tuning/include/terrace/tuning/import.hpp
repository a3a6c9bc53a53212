// Requests that other programs recorded, as traces: each request is a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/tuning/convert.hpp"

namespace terrace::tuning {

/// The model whose prefixes are imported: what a token weighs.
struct ImportedModel {
  std::string name;
  std::string fingerprint;  ///< of model_fingerprint()
  KvShape shape;
  std::uint64_t weight_bytes = 0;
};

struct MooncakeOptions {
  std::optional<ImportedModel> model = {};
  std::size_t block_tokens = 512;  ///< that an id stands for
};

/// Reads Mooncake's JSONL ({"timestamp", "input_length", "output_length", "hash_ids"} a line) as
/// prefix traffic: each request is a step that wants the blocks of its prompt in every layer, the
/// last one as many tokens as input_length leaves, and has what it missed in memory when it is
/// done. A block is a cluster of the trace. Without a model there is one layer of one head of 64
/// dimensions: hits are right, bytes and times those of no model. The source `-` is standard input.
///
/// Blank lines, CR and LF as the end of a line, a byte order mark at the beginning and whole
/// numbers written with a point or an exponent are taken as they are meant.
/// Errors: io_error; corrupt naming the line, whose number of ids must be that of its blocks.
[[nodiscard]] Status import_mooncake(const Conversion& files, const MooncakeOptions& options = {});

}  // namespace terrace::tuning
