// The program `terrace`: its signals and its thread. program.hpp runs the command.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <exception>

#include "output.hpp"
#include "program.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::apps {
namespace {

// OpenBLAS starts its threads before main(), one for each CPU, and ends the program where a
// container allows fewer. The engine calls it from threads of its own, each for itself.
[[gnu::constructor(101)]] void limit_blas_before_main() {
  ::setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
}

/// Removes incomplete files, then ends the program as the signal would. On Linux a process's first
/// thread handles signals, and only that thread opens files for writing: no file is opened after
/// the removal.
void end_by(int signal) {
  remove_pending_files();
  ::raise(signal);
  // The kernel keeps a signal's usual end from the first process of a container. A shell names the
  // end by a signal with this status.
  ::_exit(128 + signal);
}

void handle_signals() {
  struct sigaction ending{};
  ending.sa_handler = &end_by;
  // Raising the signal in the handler ends the program.
  ending.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGXCPU}) {
    struct sigaction before{};
    ::sigaction(signal, nullptr, &before);
    // nohup ignores some, and a shell does for programs in the background.
    if (before.sa_handler != SIG_IGN) ::sigaction(signal, &ending, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN);  // writing fails instead, and the message names the file
}

}  // namespace
}  // namespace terrace::apps

int main(int argc, char** argv) {
  using namespace terrace;
  apps::occupy_closed_streams();
  apps::handle_signals();
  int status = apps::failed;
  try {
    // On a stack of its own size: a container may limit the stack of a process.
    offload::Thread program([&] { status = apps::run_program(argc, argv); });
    program.join();
  } catch (const std::exception& error) {
    apps::say("the system gives no thread: {}", error.what());
  }
  return status;
}
