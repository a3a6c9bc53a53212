#include "address_look_up.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <list>
#include <mutex>
#include <system_error>

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

}  // namespace

struct AddressLookUp::State {
  std::mutex mutex;  ///< guards the answer
  std::optional<Result<Addresses>> answer;

  void set(Result<Addresses> addresses) {
    const std::scoped_lock lock(mutex);
    answer = std::move(addresses);
  }
  bool has_answer() {
    const std::scoped_lock lock(mutex);
    return answer.has_value();
  }
};

/// Threads whose look-ups nobody waits for any more. Each is joined once it has an answer, by a
/// later look-up.
struct AddressLookUp::Abandoned {
  struct Entry {
    Thread thread;
    std::shared_ptr<State> state;
  };
  std::mutex mutex;  ///< guards all
  std::list<Entry> entries;

  static Abandoned& all() {
    static auto* const abandoned = new Abandoned();  // outlives all that is static
    return *abandoned;
  }
  void add(Thread thread, std::shared_ptr<State> state) {
    const std::scoped_lock lock(mutex);
    entries.push_back({std::move(thread), std::move(state)});
  }
  void join_some() {
    const std::scoped_lock lock(mutex);
    entries.remove_if([](Entry& entry) {
      if (!entry.state->has_answer()) return false;
      entry.thread.join();
      return true;
    });
  }
};

AddressLookUp::~AddressLookUp() {
  if (!thread_.joinable()) return;
  if (state_->has_answer()) {
    thread_.join();  // it has nothing left to do
  } else {
    Abandoned::all().add(std::move(thread_), std::move(state_));
  }
}

std::shared_ptr<AddressLookUp> AddressLookUp::begin(const RemoteAddress& address,
                                                    const std::function<void()>& done) {
  auto state = std::make_shared<State>();
  const std::shared_ptr<AddressLookUp> begun(new AddressLookUp(state));
  if (auto number = look_up(address, AI_NUMERICHOST | AI_NUMERICSERV)) {
    state->set(*std::move(number));
    done();
    return begun;
  }
  Abandoned::all().join_some();
  try {
    begun->thread_ = Thread([state, address, done] {
      state->set(look_up(address, AI_NUMERICSERV));
      done();
    });
    begun->thread_.set_name("remote-names");
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
