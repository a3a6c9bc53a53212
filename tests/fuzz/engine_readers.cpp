#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "engine/safetensors_writer.hpp"
#include "fuzz/fuzz_folder.hpp"
#include "fuzz/json_reference.hpp"
#include "fuzz/readers.hpp"
#include "fuzz/safetensors_reference.hpp"
#include "json_file.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/engine/gates.hpp"
#include "terrace/engine/model_config.hpp"
#include "terrace/engine/safetensors.hpp"

namespace terrace {
namespace {

using namespace engine;

std::function<std::string(Rng&)> mutations_of(const Corpus& corpus) {
  return [corpus](Rng& rng) { return mutate(corpus, rng); };
}

std::string json_flaw(std::string_view text) { return is_json(text) ? "" : "it is no JSON"; }

/// A file with that header; its data have the size that the corpus's headers use.
std::string with_data(const std::string& header) {
  return safetensors_file(header, std::string(64, 'x'));
}

/// Why tensors are no views of what is in a file; empty where they are.
std::string view_flaw(const TensorMap& tensors, std::span<const std::byte> file) {
  for (const auto& [name, tensor] : tensors) {
    const std::size_t end =
        static_cast<std::size_t>(tensor.bytes.data() - file.data()) + tensor.bytes.size();
    if (tensor.bytes.data() < file.data() || end > file.size()) return name + " is outside it";
    std::size_t count = 1;
    for (const std::size_t extent : tensor.shape) count *= extent;
    if (tensor.dtype && count * size_bytes(*tensor.dtype) != tensor.bytes.size()) {
      return name + " has another size than its shape";
    }
  }
  return {};
}

/// Why an index does not fit the two shards; empty where it does.
std::string index_flaw(std::string_view text) {
  if (!is_json(text)) return "it is no JSON";
  const auto index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map")) return "it has no weight_map";
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const bool is_there = (tensor == "a" && shard == "one.safetensors") ||
                          (tensor == "b" && shard == "two.safetensors");
    if (!is_there) return "a tensor is not where it says";
  }
  return index["weight_map"].empty() ? "it names no tensor" : "";
}

}  // namespace

FuzzedReader model_config_reader() {
  const Corpus corpus = read_corpus("model_config");
  const auto folder = std::make_shared<TemporaryFolder>(fuzz_folder_parent());
  const auto read = [folder](std::string_view text) -> Status {
    const ExactCopy copy(text);
    TERRACE_TRY(status_of(parse_json_object(copy.bytes(), "config.json")));
    folder->write("config.json", text);
    TERRACE_ASSIGN(const ModelConfig config, read_model_config(folder->path()));
    return status_of(read_end_tokens(folder->path(), config.vocabulary));
  };
  return {{"model_config", mutations_of(corpus), read, json_flaw}, corpus};
}

FuzzedReader safetensors_reader() {
  Corpus corpus = read_corpus("safetensors_header");
  const auto make = [corpus](Rng& rng) {
    if (rng.below(4) > 0) return with_data(mutate(corpus, rng));
    std::string file = with_data(corpus[rng.below(corpus.size())].text);
    edit(file, corpus, rng);
    return file;
  };
  const auto read = [](std::string_view text) {
    const ExactCopy copy(text);
    return status_of(parse_safetensors(copy.bytes(), "x"));
  };
  const auto flaw = [](std::string_view text) {
    if (const std::string own = safetensors_flaw(text); !own.empty()) return own;
    const ExactCopy copy(text);
    const auto tensors = parse_safetensors(copy.bytes(), "x");
    return view_flaw(*tensors, copy.bytes());
  };
  for (Sample& sample : corpus) sample.text = with_data(sample.text);
  return {{"safetensors_header", make, read, flaw}, corpus};
}

FuzzedReader gates_reader() {
  Corpus corpus = read_corpus("gates");
  const auto folder = std::make_shared<TemporaryFolder>(fuzz_folder_parent());
  const auto make = [corpus](Rng& rng) { return with_data(mutate(corpus, rng)); };
  const auto read = [folder](std::string_view text) -> Status {
    constexpr KvShape shape{.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 6};
    TERRACE_ASSIGN(const policies::Gates gates,
                   read_gates(folder->write("gates", text), shape, "fuzzed"));
    const std::vector<float> key(shape.head_dim, 1);
    float rating = 0;
    Serial serial;
    gates.rate(LayerId{0}, key, {&rating, 1}, serial);
    return {};
  };
  for (Sample& sample : corpus) sample.text = with_data(sample.text);
  return {{"gates", make, read, safetensors_flaw}, corpus};
}

FuzzedReader tensor_index_reader() {
  const Corpus corpus = read_corpus("tensor_index");
  const auto folder = std::make_shared<TemporaryFolder>(fuzz_folder_parent());
  folder->write("one.safetensors", SafetensorsWriter().add("a", {2}).file());
  folder->write("two.safetensors", SafetensorsWriter().add("b", {3}).file());
  const auto read = [folder](std::string_view text) {
    folder->write("model.safetensors.index.json", text);
    return status_of(Safetensors::open(folder->path()));
  };
  return {{"tensor_index", mutations_of(corpus), read, index_flaw}, corpus};
}

}  // namespace terrace
