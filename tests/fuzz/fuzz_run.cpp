#include "fuzz/fuzz_run.hpp"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "contract/fuzz.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __SANITIZE_THREAD__
// The program ends with its handler of signals, which allocates.
extern "C" const char* __tsan_default_options();   // NOLINT(bugprone-reserved-identifier): TSan's
extern "C" const char* __tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "report_signal_unsafe=0";
}
#endif

namespace terrace {
namespace {

/// The input that is being read, for a program that ends over it.
struct Current {
  const Reader* reader = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::string_view input;
};
Current current;

std::string describe(std::string_view what) {
  return fmt::format("{}: {}; {}; the input of {} bytes: \"{}\"", current.reader->kind, what,
                     replay(current.seed, current.step), current.input.size(),
                     escaped(current.input));
}

void print_current(std::string_view what) {
  if (current.reader == nullptr) return;
  const std::string text = describe(what) + '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  current.reader = nullptr;  // once
}

/// The program ends anyway: what may not be done in a signal's handler may fail here, too.
void end_by_signal(int signal) {
  const bool too_long = signal == SIGPROF;
  if (too_long && current.reader == nullptr) return;  // it was read meanwhile
  print_current(too_long ? fmt::format("takes more than {} s", current.reader->seconds)
                         : "ends the program");
  std::signal(signal, SIG_DFL);
  std::raise(too_long ? SIGABRT : signal);
}

void watch_signals() {
  static std::array<char, 1 << 16> stack;  // the program's own may be full
  stack_t own{};
  own.ss_sp = stack.data();
  own.ss_size = stack.size();
  sigaltstack(&own, nullptr);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback([] { print_current("ends the program"); });
  constexpr std::array signals{SIGABRT, SIGPROF};
#else
  constexpr std::array signals{SIGABRT, SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
#endif
  struct sigaction action{};
  action.sa_handler = end_by_signal;
  action.sa_flags = SA_ONSTACK;
  for (const int signal : signals) sigaction(signal, &action, nullptr);
}

/// Ends a program that allocates without limit before the machine runs out of memory. Sanitizers
/// need a large address space for themselves, so they set no limit.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{.rlim_cur = rlim_t{4} << 30, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &limit);
#endif
}

/// Counts the time that the program computes, not that in which others do.
void limit_seconds(long seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = seconds;
  setitimer(ITIMER_PROF, &timer, nullptr);
}

bool is_one_line(std::string_view message) {
  return !message.empty() && message.find_first_of("\n\r") == std::string_view::npos;
}

/// Reads the current input. Returns what is wrong; empty where nothing is.
std::string read_current(const Reader& reader, bool& accepted) {
  limit_seconds(reader.seconds);
  const Status status = reader.read(current.input);
  limit_seconds(0);
  accepted = status.has_value();
  if (!accepted) {
    return is_one_line(status.error().message())
               ? ""
               : fmt::format("the message '{}' is not of one line", status.error().message());
  }
  const std::string flaw = reader.flaw(current.input);
  return flaw.empty() ? "" : "is accepted, but " + flaw;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (c == '\n') {
      result += "\\n";
    } else if (byte < 0x20 || byte > 0x7e) {
      result += fmt::format("\\{:03o}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::string fuzz(const Reader& reader, std::uint64_t steps) {
  watch_signals();
  limit_memory();
  const std::uint64_t seed = fuzz_seed(1);
  std::uint64_t accepted = 0;
  std::string flaw;
  for (std::uint64_t step = 0; step < steps && flaw.empty(); ++step) {
    Rng rng(seed, {step});
    const std::string input = reader.make(rng);
    current = {.reader = &reader, .seed = seed, .step = step, .input = input};
    bool is_accepted = false;
    flaw = read_current(reader, is_accepted);
    if (!flaw.empty()) flaw = describe(flaw);
    accepted += is_accepted ? 1 : 0;
    current = {};
  }
  constexpr std::uint64_t enough = 1000;  // for one of either kind to come
  if (flaw.empty() && steps >= enough && (accepted == 0 || accepted == steps)) {
    return fmt::format("{}: of {} inputs {} were accepted: nothing was tested", reader.kind, steps,
                       accepted);
  }
  return flaw;
}

std::string check_corpus(const Reader& reader, const Corpus& corpus) {
  std::string wrong;
  for (const Sample& sample : corpus) {
    current = {.reader = &reader, .input = sample.text};
    const Status status = reader.read(sample.text);
    std::string flaw = status ? reader.flaw(sample.text) : std::string(status.error().message());
    if (sample.name.starts_with("bad")) flaw = status ? "is accepted" : "";
    if (!flaw.empty()) wrong += fmt::format("{}/{}: {}\n", reader.kind, sample.name, flaw);
    current = {};
  }
  return wrong;
}

}  // namespace terrace
