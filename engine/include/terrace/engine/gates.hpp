// Gates in a file: the networks of retention policy smartkv, trained for one model.
//
//   TERRACE_ASSIGN(const std::string model, tuning::model_fingerprint(folder));
//   TERRACE_ASSIGN(auto gates, read_gates("gates.safetensors", shape, model));
//   options.gates = std::make_shared<const policies::Gates>(std::move(gates));
//
// tools/train_gates.py writes them, and says at its head how they lie there.
#pragma once

#include <filesystem>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/policies/retention_gates.hpp"

namespace terrace::engine {

/// Reads the gates in the file at `path`, which must be of the model with that shape and
/// fingerprint (tuning::model_fingerprint). Stages have as many inputs and outputs as their
/// tensors.
///
/// Errors   io_error: cannot be read; corrupt: no whole safetensors file, a tensor is missing, a
///          number is infinite or NaN; unsupported: another format or element type;
///          invalid_argument: gates of another model, a tensor of another shape. Each names the
///          file and what is wrong in it
/// Tests    tests/engine/gates_test.cpp
Result<policies::Gates> read_gates(const std::filesystem::path& path, const KvShape& shape,
                                   std::string_view model_fingerprint);

}  // namespace terrace::engine
