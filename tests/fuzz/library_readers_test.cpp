// Readers of user input, over inputs that are damaged in seeded ways.
#include <gtest/gtest.h>

#include "fuzz/readers.hpp"
#include "fuzz/shares.hpp"

namespace terrace {
namespace {

struct Case {
  const char* name;
  FuzzedReader (*make)();
};

class LibraryReaders : public testing::TestWithParam<Case> {};

TEST_P(LibraryReaders, TakeRightInputsAndRefuseWrongOnes) {
  const FuzzedReader fuzzed = GetParam().make();
  EXPECT_EQ(check_corpus(fuzzed.reader, fuzzed.corpus), "");
}

TEST_P(LibraryReaders, TakeNothingThatTheFormatDoesNotHave) {
  const FuzzedReader fuzzed = GetParam().make();
  EXPECT_EQ(fuzz(fuzzed.reader, fuzz_steps_of(fuzzed.reader.kind)), "");
}

INSTANTIATE_TEST_SUITE_P(All, LibraryReaders,
                         testing::Values(Case{"ModelConfig", model_config_reader},
                                         Case{"Safetensors", safetensors_reader},
                                         Case{"Gates", gates_reader},
                                         Case{"TensorIndex", tensor_index_reader},
                                         Case{"ConfigYaml", config_yaml_reader},
                                         Case{"MachineProfile", machine_profile_reader},
                                         Case{"Mooncake", mooncake_reader}, Case{"Csv", csv_reader},
                                         Case{"OracleGeneral", oraclegeneral_reader},
                                         Case{"Trace", trace_reader}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace terrace
