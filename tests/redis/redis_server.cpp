#include "redis/redis_server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace terrace::redis {
namespace {

// Redis is one program with several names. Debian's redis-tools has it under this one; the package
// redis-server, which has it under its own, starts a service on the machine.
constexpr const char* program = "redis-check-rdb";
constexpr const char* server_name = "redis-server";

/// Returns a port that nobody has now; another process may have it a moment later.
int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound =
      socket >= 0 && ::bind(socket, plain, size) == 0 && ::getsockname(socket, plain, &size) == 0;
  ::close(socket);
  if (!is_bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

/// Returns a name for the folder that says which test it is of.
std::string test_name() {
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr) return "shared";
  std::string name = std::string(test->test_suite_name()) + "." + test->name();
  std::ranges::replace(name, '/', '_');
  return name;
}

pid_t spawn(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process != 0) return process;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // it goes with a test that crashes
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int descriptor : {0, 1, 2}) ::dup2(nothing, descriptor);
  ::execvp(program, arguments.data());
  ::_exit(127);
}

}  // namespace

bool is_installed() {
  const char* const path = ::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

void wait_until(const std::function<bool()>& holds, const std::string& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("never: " + condition);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
  }
}

RedisServer::RedisServer(const RedisServerOptions& options) : options_(options) {
  std::filesystem::create_directories(folder_.path() / test_name());
  // Another process may take the port first.
  for (int i = 0; i < 20; ++i) {
    port_ = free_port();
    bus_port_ = options_.is_of_cluster ? free_port() : 0;
    if (start()) return;
  }
  throw std::runtime_error("redis-server does not start");
}

RedisServer::~RedisServer() { kill(); }

bool RedisServer::start() {
  const std::string folder = folder_.path() / test_name();
  std::vector<std::string> words{server_name, "--port",       std::to_string(port_),
                                 "--bind",    "127.0.0.1",    "--save",
                                 "",          "--dir",        folder,
                                 "--logfile", "log",          "--appendonly",
                                 "no",        "--io-threads", "1"};
  if (options_.is_of_cluster) {
    for (const char* const word :
         {"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
          "--cluster-node-timeout", "2000", "--cluster-port"}) {
      words.emplace_back(word);
    }
    words.push_back(std::to_string(bus_port_));
  }
  if (!options_.password.empty()) {
    words.emplace_back("--requirepass");
    words.push_back(options_.password);
  }
  words.insert(words.end(), options_.settings.begin(), options_.settings.end());
  process_ = spawn(words);
  bool answers = false;
  wait_until(
      [&] {
        int status = 0;
        if (::waitpid(process_, &status, WNOHANG) == process_) {
          process_ = 0;
          return true;
        }
        answers = RedisClient::connect(port_).has_value();
        return answers;
      },
      "the server answers");
  return answers;
}

RedisClient RedisServer::client() const {
  auto client = RedisClient::connect(port_, options_.password);
  if (!client) throw std::runtime_error("the server does not answer");
  return *std::move(client);
}

void RedisServer::kill() {
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = 0;
}

void RedisServer::restart() {
  if (!start()) throw std::runtime_error("the server does not start again");
}

void RedisServer::stop() {
  ::kill(process_, SIGSTOP);
  int status = 0;
  ::waitpid(process_, &status, WUNTRACED);
}

void RedisServer::go_on() { ::kill(process_, SIGCONT); }

}  // namespace terrace::redis
