// Feeds a reader of user input with damaged inputs, and finds what no reader may do.
//
//   EXPECT_EQ(fuzz({.kind = "csv", .make = ..., .read = ..., .refusal = ...}, 20'000), "");
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/mutation.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

struct Reader {
  std::string kind;
  std::function<std::string(Rng&)> make;  ///< an input
  std::function<Status(std::string_view)> read;
  /// Returns why no reader may accept an input that this one did; empty where it may.
  std::function<std::string(std::string_view)> flaw;
  long seconds = 5;  ///< of the CPU that an input may take
};

/// Tries inputs until one is read wrongly: accepted though it has a flaw, refused without a message
/// of one line. Returns what is wrong, how to see it again and the input as escaped text; nothing
/// where nothing is, and where inputs were both accepted and refused. An input that ends the
/// program, or takes too long or too much memory, is printed before the program ends.
std::string fuzz(const Reader& reader, std::uint64_t steps);

/// Returns the fault of a reader on the files of a corpus: the reader has to refuse files whose
/// names begin with "bad", and no others.
std::string check_corpus(const Reader& reader, const Corpus& corpus);

/// Text of printable characters alone that a C++ string literal gives back.
std::string escaped(std::string_view text);

/// Returns the error of a result, for Reader::read, without its value.
template <typename Value>
Status status_of(const Result<Value>& result) {
  if (result) return {};
  return tl::unexpected(result.error());
}

/// A copy with nothing after it, so that the address sanitizer sees a read of one byte too far.
class ExactCopy {
 public:
  explicit ExactCopy(std::string_view text)
      : bytes_(std::make_unique_for_overwrite<char[]>(text.size())), size_(text.size()) {
    text.copy(bytes_.get(), size_);
  }
  [[nodiscard]] std::string_view text() const noexcept { return {bytes_.get(), size_}; }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span(bytes_.get(), size_));
  }

 private:
  std::unique_ptr<char[]> bytes_;
  std::size_t size_;
};

}  // namespace terrace
