// Opening of sequences, with tokens that the file below the host keeps, and the keeping of them.
#include <nanobind/stl/string.h>

#include "objects.hpp"
#include "tokens.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace terrace::python {
namespace {

/// A query of the C interface with the memory that it points to.
struct Query {
  std::vector<std::uint32_t> tokens;
  std::string salt;
  bool with_tail = false;
  Hashes hashes;
  std::size_t hash_tokens = 0;

  [[nodiscard]] terrace_prefix_query query() const {
    terrace_prefix_query asked = TERRACE_PREFIX_QUERY_INIT;
    asked.tokens = tokens.data();
    asked.token_count = tokens.size();
    asked.salt = salt.data();
    asked.salt_bytes = salt.size();
    asked.with_tail = with_tail ? 1 : 0;
    asked.hashes = hashes.values.data();
    asked.hash_count = hashes.count;
    asked.hash_bytes = hashes.bytes;
    asked.hash_tokens = hash_tokens;
    return asked;
  }
};

struct PublishReport {
  terrace_publish_report done = TERRACE_PUBLISH_REPORT_INIT;
};

/// Names of a prefix, as a call has them.
struct GivenPrefix {
  GivenObject tokens;
  GivenObject salt;
  GivenTruth with_tail;
  GivenObject hashes;
  GivenNumber hash_tokens;
};

Query read_query(const GivenPrefix& given) {
  Query asked{.tokens = {},
              .salt = read_salt(given.salt),
              .with_tail = read_truth("with_tail", given.with_tail),
              .hashes = read_hashes("hashes", given.hashes),
              .hash_tokens = read_number("hash_tokens", given.hash_tokens)};
  if (!given.tokens.object.is_none()) asked.tokens = read_tokens("tokens", given.tokens);
  return asked;
}

Sequence open_sequence(Runtime& runtime, GivenObject tokens, GivenObject salt, GivenTruth with_tail,
                       GivenObject hashes, GivenNumber hash_tokens, GivenNumber expected_tokens) {
  terrace_sequence_options options = TERRACE_SEQUENCE_OPTIONS_INIT;
  options.expected_tokens = read_number("expected_tokens", expected_tokens);
  const Query asked = read_query({tokens, salt, with_tail, hashes, hash_tokens});
  if (tokens.object.is_none() && hashes.object.is_none() && !salt.object.is_none()) {
    raise_invalid("salt is given without tokens: give both, or neither");
  }
  const bool names_nothing = asked.tokens.empty() && asked.hashes.count == 0;
  terrace_sequence* opened = nullptr;
  runtime.handle->share([&](terrace_runtime* r) {
    if (names_nothing) return terrace_sequence_open(r, &options, &opened);
    const terrace_prefix_query query = asked.query();
    return terrace_sequence_open_prefix(r, &options, &query, &opened, nullptr);
  });
  return {hold<SequenceHandle>("the sequence", opened), runtime.shape};
}

PublishReport publish(Sequence& sequence, GivenObject tokens, GivenObject salt,
                      GivenTruth with_tail, GivenObject hashes, GivenNumber hash_tokens) {
  const Query asked = read_query({tokens, salt, with_tail, hashes, hash_tokens});
  if (tokens.object.is_none() && hashes.object.is_none()) {
    raise_invalid("a prefix without tokens: give tokens or hashes");
  }
  PublishReport report;
  sequence.handle->use([&](terrace_sequence* s) {
    const terrace_prefix_query query = asked.query();
    return terrace_sequence_publish(s, &query, &report.done);
  });
  return report;
}

std::string text_of(const PublishReport& report) {
  const terrace_publish_report& done = report.done;
  return "PublishReport(tokens=" + std::to_string(done.tokens) +
         ", chunks=" + std::to_string(done.chunks) + ", bytes=" + std::to_string(done.bytes) +
         ", indexed=" + (done.indexed != 0 ? "True" : "False") + ")";
}

void add_report(nb::module_& module) {
  nb::class_<PublishReport>(module, "PublishReport", "The work of Sequence.publish.")
      .def_prop_ro(
          "tokens", [](const PublishReport& report) { return report.done.tokens; },
          "Tokens that the store has now, of whole chunks.")
      .def_prop_ro(
          "chunks", [](const PublishReport& report) { return report.done.chunks; },
          "Chunks that were written: the store had the others.")
      .def_prop_ro(
          "bytes", [](const PublishReport& report) { return report.done.bytes; },
          "Bytes of rows and indexes that were written.")
      .def_prop_ro(
          "indexed", [](const PublishReport& report) { return report.done.indexed != 0; },
          "Whether the store has indexes of all these tokens.")
      .def("__repr__", &text_of);
}

}  // namespace

void add_prefix(nb::module_& module) {
  add_report(module);
  nb::borrow<nb::class_<Runtime>>(nb::type<Runtime>())
      .def("open_sequence", &open_sequence, "tokens"_a = nb::none(), nb::kw_only(),
           "salt"_a = nb::none(), "with_tail"_a = false, "hashes"_a = nb::none(),
           "hash_tokens"_a = 0, "expected_tokens"_a = 0,
           nb::sig("def open_sequence(self, tokens: collections.abc.Sequence[int] | typing.Any | "
                   "None = None, *, salt: str | bytes | None = None, with_tail: bool = False, "
                   "hashes: list[bytes] | None = None, hash_tokens: int = 0, "
                   "expected_tokens: int = 0) -> Sequence"),
           R"(Opens a sequence that begins with the longest stored prefix of `tokens`: whole
chunks or, with with_tail, all of them. Its length tells how many tokens were found. It is empty
without tokens, if nothing is found, or if no prefixes are kept (Sequence.publish says why).

tokens: ids from the sequence's first token on, a list or an array of one dimension in host memory.
A sequence needs a token after those that are found: a program that computes logits of the last
token gives all tokens but that one. salt: a tenant's secret, with which the prefix was published.
with_tail: also finds the tokens behind the last whole chunk, if exactly these were published so.
hashes: in place of tokens, hashes as an engine has them of its own blocks of hash_tokens tokens (a
divisor of tier.chunk_tokens), which stand for all that the rows depend on, images for example; a
prefix that was published with hashes is found with hashes alone.
expected_tokens: how many tokens it will have at most; 0: not known.

Raises OutOfMemory, also if so many tokens would not fit in the granted device memory;
InvalidArgument, where prefixes are kept: hashes that do not fit chunks, or tokens beside them.)");
  nb::borrow<nb::class_<Sequence>>(nb::type<Sequence>())
      .def("publish", &publish, "tokens"_a = nb::none(), nb::kw_only(), "salt"_a = nb::none(),
           "with_tail"_a = false, "hashes"_a = nb::none(), "hash_tokens"_a = 0,
           nb::sig("def publish(self, tokens: collections.abc.Sequence[int] | typing.Any | None = "
                   "None, *, salt: str | bytes | None = None, with_tail: bool = False, hashes: "
                   "list[bytes] | None = None, hash_tokens: int = 0) -> PublishReport"),
           R"(Keeps the sequence's first tokens as a prefix that Runtime.open_sequence finds, in
this process and later ones: the rows of whole chunks (tier.chunk_tokens) that the file
tier.nvme.path lacks, and the indexes at their end. Returns when all is in the file. With
daemon.socket, terraced has the file, and other processes find the prefix at once.

tokens: the ids of these tokens; Terrace cannot check them. salt: a tenant's secret, without which
the prefix is not found. with_tail: keeps the tokens behind the last whole chunk, too: a sequence
that is published with all its tokens, and closed, goes on in another one with the same bits.
hashes, hash_tokens: in place of tokens, as with Runtime.open_sequence.

Raises Unsupported: no prefixes are kept, which needs tier.nvme.path or daemon.socket, tier.model, a
policy that keeps rows on the host and no retention; InvalidArgument: not idle, more tokens than
the sequence has, or hashes that do not fit chunks; OutOfMemory: the file is full; NotReady: the
daemon is away. Chunks that were written stay.)");
}

}  // namespace terrace::python
