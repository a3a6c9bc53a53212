// Shows that the fuzzer finds faults, within the steps that a reader has in `make test`.
#include <gmock/gmock.h>

#include "fuzz/fuzz_run.hpp"
#include "fuzz/json_reference.hpp"
#include "fuzz/yaml_reference.hpp"

namespace terrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t steps = 20'000;

/// A reader of JSON that has a fault of its own.
Reader faulty_reader(std::function<Status(std::string_view)> read) {
  const Corpus corpus = read_corpus("model_config");
  return {"canary", [corpus](Rng& rng) { return mutate(corpus, rng); }, std::move(read),
          [](std::string_view text) { return is_json(text) ? "" : "it is no JSON"; }};
}

Status refuse_unless(bool right) {
  if (right) return {};
  return fail(Errc::corrupt, "no JSON");
}

TEST(FuzzCanary, AReaderThatTakesTrailingCommasIsFound) {
  const Reader reader = faulty_reader([](std::string_view text) {
    std::string without(text);
    for (std::size_t at = 0; (at = without.find(',', at)) != std::string::npos; ++at) {
      const std::size_t next = without.find_first_not_of(" \t\r\n,", at);
      if (next != std::string::npos && (without[next] == ']' || without[next] == '}')) {
        without.erase(at, next - at);
      }
    }
    return refuse_unless(is_json(without));
  });
  EXPECT_THAT(fuzz(reader, steps), AllOf(StartsWith("canary: is accepted, but it is no JSON; "),
                                         HasSubstr("; TERRACE_SEED="), HasSubstr(" bytes: \"")));
}

TEST(FuzzCanary, AReaderThatTakesAnyBytesInStringsIsFound) {
  const Reader reader = faulty_reader([](std::string_view text) {
    std::string without(text);
    for (char& c : without) c = static_cast<unsigned char>(c) > 0x7e ? '?' : c;
    return refuse_unless(is_json(without));
  });
  EXPECT_THAT(fuzz(reader, steps), HasSubstr("is accepted"));
}

TEST(FuzzCanary, AMessageOfTwoLinesIsFound) {
  const Reader reader = faulty_reader([](std::string_view text) -> Status {
    if (is_json(text)) return {};
    return fail(Errc::corrupt, "no JSON:\n{}", text.substr(0, 10));
  });
  EXPECT_THAT(fuzz(reader, steps), HasSubstr("is not of one line"));
}

TEST(FuzzCanary, AReaderThatTakesOrRefusesAllIsFound) {
  EXPECT_THAT(fuzz(faulty_reader([](std::string_view) { return refuse_unless(false); }), steps),
              HasSubstr("nothing was tested"));
}

TEST(FuzzCanaryDeathTest, AnInputThatEndsTheProgramIsPrinted) {
  const Reader reader = faulty_reader([](std::string_view text) {
    if (!is_json(text)) std::abort();
    return Status();
  });
  EXPECT_DEATH(fuzz(reader, steps),
               "canary: ends the program; TERRACE_SEED=[0-9]+, step [0-9]+; the");
}

TEST(FuzzCanaryDeathTest, AnInputWithoutAnEndIsPrinted) {
  Reader reader = faulty_reader([](std::string_view text) {
    // The thread sanitizer lets signals in where it watches, as in taking memory.
    while (!is_json(text)) escaped(text);
    return Status();
  });
  reader.seconds = 1;
  EXPECT_DEATH(fuzz(reader, steps), "canary: takes more than 1 s; TERRACE_SEED=");
}

TEST(YamlReference, RefusesWhatIsNoYaml) {
  EXPECT_EQ(yaml_error("a: {b: [1, 2]}\n"), "");
  EXPECT_EQ(yaml_error("a: 1\nb: [:c]\n---\n...\n"), "") << "YAML 1.2 has it";
  EXPECT_EQ(yaml_error("\t\n"), "");
  for (const char* const text : {"a: \"b\n", "a: [1,,2]\n", "a: 1\nb\n", "a: !u!v 1\n",
                                 "a:\n{b: 1}", "%TAG\n", "a: \x01\n", "a: \xff\n", "a:\n\t- 1\n"}) {
    EXPECT_NE(yaml_error(text), "") << text;
  }
}

TEST(FuzzText, IsEscapedAsCppHasIt) {
  EXPECT_EQ(escaped("a\"\\\n\x01\xff z"), R"(a\"\\\n\001\377 z)");
}

}  // namespace
}  // namespace terrace
