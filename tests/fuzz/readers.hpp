// The readers of user input that belong to the libraries, each with what it is tried on.
#pragma once

#include "fuzz/fuzz_run.hpp"

namespace terrace {

struct FuzzedReader {
  Reader reader;
  Corpus corpus;  ///< what its inputs are made of, where these are files
};

// The readers of engine.
FuzzedReader model_config_reader();
FuzzedReader safetensors_reader();
FuzzedReader gates_reader();
FuzzedReader tensor_index_reader();

// The readers of runtime.
FuzzedReader config_yaml_reader();
FuzzedReader machine_profile_reader();

// The readers of tuning.
FuzzedReader mooncake_reader();
FuzzedReader csv_reader();
FuzzedReader oraclegeneral_reader();
FuzzedReader trace_reader();

}  // namespace terrace
