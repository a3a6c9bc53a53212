// Readers of the program's own inputs, over inputs that are damaged in seeded ways.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "fuzz/fuzz_folder.hpp"
#include "fuzz/fuzz_run.hpp"
#include "fuzz/json_reference.hpp"
#include "fuzz/shares.hpp"
#include "run/needles.hpp"
#include "run/token_text.hpp"
#include "run/turns_file.hpp"

namespace terrace::apps {
namespace {

using nlohmann::json;

constexpr std::size_t context = 4096;
constexpr std::size_t vocabulary = 256;
constexpr std::size_t wanted = 8;

bool are_ids(const json& list) {
  return list.is_array() && std::ranges::all_of(list, [](const json& id) {
           return id.is_number_unsigned() && id.get<std::uint64_t>() < vocabulary;
         });
}

bool is_needle(const json& needle) {
  if (!needle.is_object()) return false;
  for (const char* const ids : {"statement", "question", "answer"}) {
    if (!needle.contains(ids) || !are_ids(needle[ids])) return false;
  }
  if (!needle.contains("depth") || !needle["depth"].is_number()) return false;
  const auto depth = needle["depth"].get<double>();
  if (!(depth >= 0 && depth <= 1) || !needle.contains("answer_is_digit")) return false;
  const json& digits = needle["answer_is_digit"];
  return digits.is_array() && digits.size() == needle["answer"].size() &&
         std::ranges::all_of(digits, &json::is_boolean) && !needle["question"].empty();
}

bool is_number(const json& object, const char* name, std::uint64_t number) {
  return object.contains(name) && object[name].is_number_unsigned() && object[name] == number;
}

/// Why a text is no needles file; empty where it is one.
std::string needles_flaw(std::string_view text) {
  if (!is_json(text)) return "it is no JSON";
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool fits = file.is_object() && is_number(file, "version", 1) &&
                    is_number(file, "context_tokens", context) && file.contains("needles") &&
                    file["needles"].is_array() && std::ranges::all_of(file["needles"], is_needle);
  return fits ? "" : "it is no needles file";
}

/// Why a sentence of a form has not each placeholder once; empty where it has.
std::string sentence_flaw(std::string sentence) {
  for (const std::string place : {"{adjective}", "{noun}", "{digits}"}) {
    const std::size_t at = sentence.find(place);
    if (at == std::string::npos) return "it lacks " + place;
    sentence.replace(at, place.size(), "-");
  }
  return sentence.find_first_of("{}|") == std::string::npos ? "" : "it has more in braces, or bars";
}

/// Why a text is no form of needles; empty where it is one.
std::string form_flaw(std::string_view text) {
  if (text == "trained" || text == "plain") return "";
  const auto is_control = [](char c) { return (c >= 0 && c < 32) || c == 127; };
  if (std::ranges::any_of(text, is_control)) return "it has control characters";
  const std::size_t bar = text.find('|');
  const std::string fact(text.substr(0, bar));
  const std::string question(bar == text.npos ? text : text.substr(bar + 1));
  for (const std::string& sentence : {fact, question}) {
    if (const std::string flaw = sentence_flaw(sentence); !flaw.empty()) return flaw;
  }
  const std::size_t asked = question.find("{digits}");
  return question.find("{adjective}") < asked && question.find("{noun}") < asked
             ? ""
             : "its question names nothing";
}

/// Why a text has no turns; empty where it has.
std::string turns_flaw(std::string_view text) {
  if (!is_json(text)) return "it is no JSON";
  const json file = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_turn = [](const json& turn) {
    if (turn.is_string()) return !turn.get_ref<const std::string&>().empty();
    return are_ids(turn) && !turn.empty();
  };
  const bool fits = file.is_array() && !file.empty() && std::ranges::all_of(file, is_turn);
  return fits ? "" : "it has no turns";
}

std::string ids_file(std::initializer_list<std::uint32_t> ids) {
  std::string bytes;
  for (const std::uint32_t id : ids) {
    for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift);
  }
  return bytes;
}

/// Why a file has not the ids that are wanted; empty where it has.
std::string tokens_flaw(std::string_view bytes) {
  if (bytes.size() % 4 != 0) return "it ends amid an id";
  if (bytes.size() < 4 * wanted) return "it is too short";
  for (std::size_t i = 0; i < 4 * wanted; ++i) {
    if (i % 4 != 0 && bytes[i] != '\0') return "an id is outside the vocabulary";
  }
  return {};
}

struct Fuzzed {
  TemporaryFolder folder{fuzz_folder_parent()};
  Corpus corpus;
  Reader reader;
};

void make_needles_reader(Fuzzed& fuzzed) {
  fuzzed.corpus = read_corpus("needles");
  fuzzed.reader = {"needles", [&](Rng& rng) { return mutate(fuzzed.corpus, rng); },
                   [&](std::string_view text) {
                     const std::string path = fuzzed.folder.write("n.json", text);
                     return status_of(read_needles_file(path, context, vocabulary));
                   },
                   needles_flaw};
}

void make_form_reader(Fuzzed& fuzzed) {
  fuzzed.corpus = {{"trained", "trained"},
                   {"plain", "plain"},
                   {"fact", "The {adjective} {noun} opens with {digits}."},
                   {"question", "{digits}: {noun}, {adjective}|{adjective} {noun}  {digits}"},
                   {"bad-name", "plian"},
                   {"bad-order", "{digits} {adjective} {noun}"},
                   {"bad-place", "{adjective} {noun} {number} {digits}"},
                   {"bad-bar", "{adjective} {noun} {digits}|{adjective} {noun} {digits}|"}};
  fuzzed.reader = {
      "needle_form", [&](Rng& rng) { return mutate(fuzzed.corpus, rng); },
      [](std::string_view text) {
        return status_of(parse_needle_form(std::string(text)).and_then([](const NeedleForm& form) {
          return make_needles(3, 1, form);
        }));
      },
      form_flaw};
}

void make_turns_reader(Fuzzed& fuzzed) {
  fuzzed.corpus = {{"texts", R"(["one", "two \u00e9"])"},
                   {"ids", "[[0, 255], [7]]"},
                   {"bad-empty", R"(["one", []])"},
                   {"bad-number", "[[0], 1]"},
                   {"bad-outside", "[[256]]"}};
  fuzzed.reader = {"turns", [&](Rng& rng) { return mutate(fuzzed.corpus, rng); },
                   [&](std::string_view text) {
                     const std::string path = fuzzed.folder.write("u.json", text);
                     return status_of(read_turns_file(path, vocabulary));
                   },
                   turns_flaw};
}

void make_tokens_reader(Fuzzed& fuzzed) {
  fuzzed.corpus = {{"eight", ids_file({1, 2, 3, 4, 5, 6, 7, 255})},
                   {"more", ids_file({0, 9, 9, 9, 9, 9, 9, 9, 1, 2, 256, UINT32_MAX})},
                   {"bad", ids_file({0, 9, 9, 9, 9, 9, 9, 256})}};
  fuzzed.reader = {"tokens", [&](Rng& rng) { return mutate(fuzzed.corpus, rng); },
                   [&](std::string_view text) {
                     const std::string path = fuzzed.folder.write("t.u32", text);
                     return status_of(read_tokens({.tokens_file = path}, vocabulary, wanted));
                   },
                   tokens_flaw};
}

TEST(AppReaders, TakeNeedlesAndNothingElse) {
  Fuzzed fuzzed;
  make_needles_reader(fuzzed);
  EXPECT_EQ(check_corpus(fuzzed.reader, fuzzed.corpus), "");
  EXPECT_EQ(fuzz(fuzzed.reader, fuzz_steps_of("needles")), "");
}

TEST(AppReaders, TakeFormsOfNeedlesAndNothingElse) {
  Fuzzed fuzzed;
  make_form_reader(fuzzed);
  EXPECT_EQ(check_corpus(fuzzed.reader, fuzzed.corpus), "");
  EXPECT_EQ(fuzz(fuzzed.reader, fuzz_steps_of("needle_form")), "");
}

TEST(AppReaders, TakeTurnsAndNothingElse) {
  Fuzzed fuzzed;
  make_turns_reader(fuzzed);
  EXPECT_EQ(check_corpus(fuzzed.reader, fuzzed.corpus), "");
  EXPECT_EQ(fuzz(fuzzed.reader, fuzz_steps_of("turns")), "");
}

TEST(AppReaders, TakeTokensAndNothingElse) {
  Fuzzed fuzzed;
  make_tokens_reader(fuzzed);
  EXPECT_EQ(check_corpus(fuzzed.reader, fuzzed.corpus), "");
  EXPECT_EQ(fuzz(fuzzed.reader, fuzz_steps_of("tokens")), "");
}

}  // namespace
}  // namespace terrace::apps
