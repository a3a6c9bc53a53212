#include "failure.hpp"

#include <algorithm>
#include <array>

namespace terrace::bindings {
namespace {

// The buffer has a fixed size, so that keeping a message never fails.
thread_local std::array<char, Error::text_capacity + 1> last_message{};

constexpr terrace_status code_of(Errc code) noexcept {
  return static_cast<terrace_status>(static_cast<int>(code) + 1);
}
static_assert(code_of(Errc::invalid_argument) == TERRACE_INVALID_ARGUMENT);
static_assert(code_of(Errc::out_of_memory) == TERRACE_OUT_OF_MEMORY);
static_assert(code_of(Errc::not_ready) == TERRACE_NOT_READY);
static_assert(code_of(Errc::unsupported) == TERRACE_UNSUPPORTED);
static_assert(code_of(Errc::device_error) == TERRACE_DEVICE_ERROR);
static_assert(code_of(Errc::device_lost) == TERRACE_DEVICE_LOST);
static_assert(code_of(Errc::io_error) == TERRACE_IO_ERROR);
static_assert(code_of(Errc::corrupt) == TERRACE_CORRUPT);
static_assert(code_of(Errc::cancelled) == TERRACE_CANCELLED);

}  // namespace

terrace_status keep_failure(terrace_status code, std::string_view message) noexcept {
  const std::size_t size = std::min(message.size(), last_message.size() - 1);
  std::copy_n(message.begin(), size, last_message.begin());
  last_message.at(size) = '\0';
  return code;
}

terrace_status keep_failure(const Error& error) noexcept {
  return keep_failure(code_of(error.code), error.message());
}

}  // namespace terrace::bindings

const char* terrace_message() { return terrace::bindings::last_message.data(); }
