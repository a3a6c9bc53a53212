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

/// The model of the imported prefixes, which gives the bytes of a token.
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
/// done. A block is a cluster of the trace. `timestamp`, in milliseconds, is when it came; a line
/// may have none. If no model is given, the trace has one layer of one
/// head of 64 dimensions: hits are right, but bytes and times are of no real model. The source `-`
/// is standard input.
///
/// Blank lines, CR and LF as the end of a line, a byte order mark at the beginning and whole
/// numbers written with a point or an exponent are accepted.
/// Errors: io_error; corrupt naming the line, whose number of ids must be that of its blocks.
[[nodiscard]] Status import_mooncake(const Conversion& files, const MooncakeOptions& options = {});

struct ObjectOptions {
  // Columns of csv, from 1; the time of a request and all other columns are ignored.
  std::size_t id_column = 2;
  std::size_t size_column = 3;
  bool ignore_sizes = false;  ///< each object is one row
};

/// Reads requests of objects, each a step that wants one unit of one layer: lines of csv, as
/// libCacheSim has them (`time,obj_id,obj_size` or more columns; between them a comma, tab, bar or
/// semicolon; the first line may name them). An id is a text. A unit has as many rows as obj_size
/// says, 0 counts as 1, and a row takes a slot: so a cache of so many tokens holds objects of as
/// much in all (decision 0068). Bytes and times are those of no model. `-` is standard input.
/// Errors: io_error; corrupt naming the line.
[[nodiscard]] Status import_csv(const Conversion& files, const ObjectOptions& options = {});

/// Reads libCacheSim's oracleGeneral, not compressed, in the same way: records of 24 bytes, little
/// endian: u32 time, u64 obj_id, u32 obj_size, i64 number of the object's next request, which is
/// ignored. Errors: io_error; corrupt naming the record.
[[nodiscard]] Status import_oraclegeneral(const Conversion& files,
                                          const ObjectOptions& options = {});

}  // namespace terrace::tuning
