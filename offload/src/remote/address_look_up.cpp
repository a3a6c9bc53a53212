#include "address_look_up.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <system_error>

#include "terrace/offload/thread.hpp"

namespace terrace::offload {
namespace {

using Addresses = std::vector<SocketAddress>;

Result<Addresses> look_up(const RemoteAddress& address, int flags) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found);
  if (error != 0) {
    return fail(Errc::io_error, "store remote: no address of {}: {}", address.host,
                ::gai_strerror(error));
  }
  Addresses addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress& next = addresses.emplace_back();
    next.size = each->ai_addrlen;
    std::memcpy(&next.bytes, each->ai_addr, each->ai_addrlen);
  }
  ::freeaddrinfo(found);
  return addresses;
}

/// Threads of look-ups: each is joined by a later look-up. Those that a name server keeps waiting
/// are left alone, so that nobody waits for them.
struct LookUpThreads {
  struct Entry {
    Thread thread;
    std::shared_ptr<std::atomic<bool>> has_ended;
  };
  std::mutex mutex;  ///< guards all
  std::list<Entry> entries;

  void run(std::function<void()> body) {
    const std::scoped_lock lock(mutex);
    entries.remove_if([](Entry& entry) {
      if (!*entry.has_ended) return false;
      entry.thread.join();
      return true;
    });
    const auto has_ended = std::make_shared<std::atomic<bool>>(false);
    Thread thread([body = std::move(body), has_ended] {
      body();
      *has_ended = true;
    });
    thread.set_name("remote-names");
    entries.push_back({std::move(thread), has_ended});
  }
};

LookUpThreads& look_up_threads() {
  static auto* const threads = new LookUpThreads();  // outlives all that is static
  return *threads;
}

}  // namespace

struct AddressLookUp::State {
  std::mutex mutex;  ///< guards the answer
  std::optional<Result<Addresses>> answer;

  void set(Result<Addresses> addresses) {
    const std::scoped_lock lock(mutex);
    answer = std::move(addresses);
  }
};

std::shared_ptr<AddressLookUp> AddressLookUp::begin(const RemoteAddress& address,
                                                    std::function<void()> done) {
  auto state = std::make_shared<State>();
  const std::shared_ptr<AddressLookUp> begun(new AddressLookUp(state));
  if (auto number = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV)) {
    state->set(*std::move(number));
    done();
    return begun;
  }
  try {
    look_up_threads().run([state, address, done] {
      state->set(look_up(address, AI_NUMERICSERV));
      done();
    });
  } catch (const std::system_error& error) {
    state->set(fail(Errc::out_of_memory, "store remote: no thread to look {} up: {}", address.host,
                    error.what()));
    done();
  }
  return begun;
}

std::optional<Result<Addresses>> AddressLookUp::answer() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->answer;
}

}  // namespace terrace::offload
