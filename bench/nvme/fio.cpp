#include "nvme/fio.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

extern char** environ;

namespace terrace::bench {
namespace {

/// Reads everything from a descriptor; less if no data come for too long.
std::string read_all(int descriptor, const Deadline& deadline) {
  std::string text;
  std::array<char, 1 << 14> some{};
  while (true) {
    pollfd waits{.fd = descriptor, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left());
    const int ready = ::poll(&waits, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return text;
    const ssize_t count = ::read(descriptor, some.data(), some.size());
    if (count <= 0) return text;
    text.append(some.data(), static_cast<std::size_t>(count));
  }
}

/// Runs a program and returns what it writes to standard output.
Result<std::string> output_of(const std::vector<std::string>& arguments, Duration patience) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return fail(Errc::io_error, "fio: {}", std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t process = 0;
  const int failed = ::posix_spawnp(&process, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    return fail(Errc::io_error, "fio: {}", std::strerror(failed));
  }
  const Deadline deadline(patience);
  std::string text = read_all(ends[0], deadline);
  ::close(ends[0]);
  if (deadline.left() == Duration{}) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) return fail(Errc::io_error, "fio ended with status {}", status);
  return text;
}

}  // namespace

Result<std::string> find_fio() {
  TERRACE_ASSIGN(const std::string text, output_of({"fio", "--version"}, std::chrono::seconds(10)));
  constexpr std::string_view head = "fio-";
  const std::string line = text.substr(0, text.find('\n'));
  return line.starts_with(head) ? line.substr(head.size()) : line;
}

Result<TrafficFigures> run_fio(const PageFile& file, const Traffic& traffic, Duration time) {
  const std::string kind = traffic.writes ? "write" : "read";
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time);
  TERRACE_ASSIGN(
      const std::string text,
      output_of(
          {"fio", "--name=terrace", "--filename=" + file.path(),
           fmt::format("--size={}", file.bytes()), "--ioengine=io_uring", "--fixedbufs=1",
           "--registerfiles=1", fmt::format("--direct={:d}", file.direct()),
           fmt::format("--rw={}{}", traffic.scattered ? "rand" : "", kind),
           fmt::format("--bs={}", traffic.page_bytes), fmt::format("--iodepth={}", traffic.depth),
           fmt::format("--runtime={}ms", milliseconds.count()), "--time_based", "--invalidate=0",
           "--output-format=json"},
          time + std::chrono::seconds(60)));
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto at = [&document](const std::string& path) -> double {
    const nlohmann::json::json_pointer pointer("/jobs/0/" + path);
    const bool is_there = document.contains(pointer) && document[pointer].is_number();
    return is_there ? document[pointer].get<double>() : 0;
  };
  const double requests = at(kind + "/total_ios");
  if (!(requests > 0)) return fail(Errc::io_error, "fio reports no transfers");
  const double cpu_share = (at("usr_cpu") + at("sys_cpu")) / 100;
  return TrafficFigures{.bytes_per_second = at(kind + "/bw_bytes"),
                        .cpu_seconds_per_request = cpu_share * 1e-3 * at("job_runtime") / requests};
}

}  // namespace terrace::bench
