// Other forms of traces, and traces made to order.
#pragma once

#include <filesystem>

#include "terrace/core/result.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// Writes a trace of tokens as one of blocks, smaller and of one block size.
/// Errors: those of the trace; invalid_argument: it has no tokens.
[[nodiscard]] Status convert_to_blocks(const std::filesystem::path& source,
                                       const std::filesystem::path& target,
                                       std::size_t block_tokens);

/// Writes lines `sequence,layer,step,unit,rows,slots` for other simulators.
[[nodiscard]] Status convert_to_csv(const std::filesystem::path& source,
                                    const std::filesystem::path& target, std::size_t block_tokens);

/// Reads Mooncake's JSONL ({"timestamp", "input_length", "output_length", "hash_ids"} a line) as
/// prefix traffic: each request is a step that wants the blocks of its prompt, 512 tokens each, and
/// has what it missed in memory when it is done. A block is a cluster of the trace.
/// Errors: io_error; corrupt naming the line.
[[nodiscard]] Status import_mooncake(const std::filesystem::path& source,
                                     const std::filesystem::path& target);

}  // namespace terrace::tuning
