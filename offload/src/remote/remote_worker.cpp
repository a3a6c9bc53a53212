#include "remote_worker.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "page_frame.hpp"
#include "storage/store_errors.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t background_flights_max = 64;
constexpr std::uint64_t background_bytes_max = std::uint64_t{8} << 20;
constexpr std::size_t redirects_max = 8;
constexpr std::uint64_t no_limit = ~std::uint64_t{0};

TimePoint time_now() noexcept { return std::chrono::steady_clock::now(); }

tl::unexpected<Error> not_sent() {
  return fail(Errc::cancelled, "store remote: the batch was cancelled before the request was sent");
}

tl::unexpected<Error> late() {
  return fail(Errc::not_ready, "store remote: no answer by the deadline");
}

/// Refuses a request that no server has to be asked for.
Status check_request(const PageRequest& request) {
  TERRACE_TRY(check_memory("remote", request));
  const bool names_bytes = request.verb == PageVerb::put || request.verb == PageVerb::get_part;
  const std::size_t offset = request.verb == PageVerb::get_part ? request.offset : 0;
  const std::size_t most = frame_page_bytes_max - std::min(offset, frame_page_bytes_max);
  if (names_bytes && (request.bytes == 0 || request.bytes > most)) {
    return fail(Errc::invalid_argument,
                "store remote: a page has 1 byte to 256 MiB, not {} bytes from {}", request.bytes,
                offset);
  }
  if (request.verb > PageVerb::find) {
    return fail(Errc::invalid_argument, "store remote: no such verb");
  }
  return {};
}

/// Returns the options with lengths of time that can be added to any time.
RemoteStoreOptions bounded(RemoteStoreOptions options) {
  constexpr Duration most = std::chrono::hours(24);
  for (Duration* const time :
       {&options.deadline, &options.connect_timeout, &options.retry_first, &options.retry_max}) {
    *time = std::min(*time, most);
  }
  return options;
}

}  // namespace

RemoteStore::Worker::Worker(const RemoteStoreOptions& options)
    : options_(bounded(options)),
      wake_(std::make_shared<WakeEvent>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      batches_("remote", options.batches_max),
      nodes_(options_, [wake = wake_] { wake->set(); }) {
  usage_ = {.pages_max = no_limit, .free_bytes = no_limit};
}

RemoteStore::Worker::~Worker() { end(); }

void RemoteStore::Worker::end() noexcept {
  stops_ = true;
  wake_->set();
  if (thread_.joinable()) thread_.join();
}

Status RemoteStore::Worker::check_options() const {
  if (options_.server.addresses.empty()) {
    return fail(Errc::invalid_argument, "store remote: no address of a server");
  }
  for (const Duration time : {options_.deadline, options_.connect_timeout, options_.retry_first}) {
    if (time > Duration{}) continue;
    return fail(Errc::invalid_argument,
                "store remote: deadline, connect_timeout and retry_first are above zero");
  }
  if (options_.ttl < Duration{} || options_.retry_max < options_.retry_first ||
      options_.depth == 0) {
    return fail(Errc::invalid_argument,
                "store remote: a ttl below zero, a depth of zero, or retry_max below retry_first");
  }
  return {};
}

Status RemoteStore::Worker::open() {
  TERRACE_TRY(check_options());
  if (wake_->descriptor() < 0) {
    return fail(Errc::out_of_memory, "store remote: no descriptor for it: {}",
                std::strerror(errno));
  }
  nodes_.describe(state_);
  try {
    thread_ = Thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return fail(Errc::out_of_memory, "store remote: no thread for it: {}", error.what());
  }
  thread_.set_name("remote");
  return {};
}

void RemoteStore::Worker::cancel_some() noexcept {
  any_cancelled_ = true;
  wake_->set();
}

StoreUsage RemoteStore::Worker::usage() const {
  const std::scoped_lock lock(mutex_);
  return usage_;
}

RemoteStoreState RemoteStore::Worker::state() const {
  const std::scoped_lock lock(mutex_);
  return state_;
}

void RemoteStore::Worker::keep(std::unique_ptr<Worker> worker) {
  static std::mutex guard;
  // Never destroyed: it may have been amid anything when the process forked.
  static auto* const kept = new std::vector<std::unique_ptr<Worker>>();
  const std::scoped_lock lock(guard);
  kept->push_back(std::move(worker));
}

void RemoteStore::Worker::serve() {
  constexpr Duration long_time = std::chrono::hours(1);  // a thread with work wakes this one
  for (;;) {
    const bool is_last = stops_;  // before it looks for new batches, so that none is left
    const bool has_more = go_on();
    if (is_last && flights_.empty()) return;
    wait_for_events(has_more ? Duration{} : long_time);
  }
}

bool RemoteStore::Worker::go_on() {
  const TimePoint now = time_now();
  take_new(now);
  if (any_cancelled_.exchange(false) || stops_) end_cancelled();
  begin_some(now);
  dispatch_waiting();
  NodeNews news;
  const bool heard = nodes_.advance(polls_, now, news);
  hear(news);
  end_late(now);
  if (heard) {
    const std::scoped_lock lock(mutex_);
    nodes_.describe(state_);
  }
  return heard;
}

void RemoteStore::Worker::take_new(TimePoint now) {
  for (auto& batch : batches_.take()) {
    if (batch->options.priority == Priority::awaited) batch->end_by = now + options_.deadline;
    for (PageRequest& request : batch->requests) order_.add({batch, &request});
  }
}

void RemoteStore::Worker::end_cancelled() {
  order_.take_out([&](const PageWork& work) {
    if (!stops_ && !work.batch->is_cancelled) return false;
    conclude(work, not_sent());
    return true;
  });
  std::vector<FlightPointer> ended;
  for (const auto& [deadline, flight] : flights_) {
    const bool is_meant = stops_ || flight->work.batch->is_cancelled;
    if (is_meant && !flight->was_sent) ended.push_back(flight);
  }
  for (const FlightPointer& flight : ended) finish(flight, not_sent());
}

void RemoteStore::Worker::begin_some(TimePoint now) {
  for (;;) {
    const bool with_background =
        background_flights_ < background_flights_max && background_bytes_ < background_bytes_max;
    auto work = order_.next(with_background);
    if (!work) return;
    begin(std::move(*work), now);
  }
}

void RemoteStore::Worker::begin(PageWork work, TimePoint now) {
  const bool is_cancelled = work.batch->is_cancelled || stops_;
  const Status checked = is_cancelled ? Status(not_sent()) : check_request(*work.request);
  if (!checked) {
    order_.give_up(work.request->key);
    return conclude(work, checked);
  }
  auto flight = std::make_shared<RemoteFlight>();
  flight->name = value_name(options_.key_prefix, work.request->key);
  flight->slot = slot_of(flight->name);
  const PageVerb verb = work.request->verb;
  const bool moves = verb != PageVerb::erase && verb != PageVerb::find;
  flight->bytes = moves ? work.request->bytes : 0;
  flight->writes = verb == PageVerb::put || verb == PageVerb::erase;
  const TimePoint deadline = std::min(work.batch->end_by, now + options_.deadline);
  if (work.is_background()) {
    ++background_flights_;
    background_bytes_ += flight->bytes;
  }
  // The store says 0 bytes of a page that it does not find.
  if (verb == PageVerb::find) work.request->bytes = 0;
  flight->work = std::move(work);
  flight->place = flights_.emplace(deadline, flight);
  dispatch(flight);
}

void RemoteStore::Worker::dispatch(const FlightPointer& flight) {
  go(flight, nodes_.route(flight->slot));
}

void RemoteStore::Worker::go(const FlightPointer& flight, RemoteNodes::Route route) {
  if (!route.refused) return finish(flight, route.refused);
  if (route.must_wait) return waiting_.push_back(flight);
  route.node->send(flight);
}

void RemoteStore::Worker::dispatch_waiting() {
  for (const FlightPointer& flight : std::exchange(waiting_, {})) {
    if (!flight->is_over) dispatch(flight);
  }
}

void RemoteStore::Worker::hear(NodeNews& news) {
  if (news.failure) {
    const std::scoped_lock lock(mutex_);
    ++state_.failures;
  }
  for (const FlightPointer& flight : news.answered) answered(flight);
  for (const FlightPointer& flight : news.lost) finish(flight, flight->failure);
  for (const FlightPointer& flight : news.without_memory) {
    finish(flight,
           fail(Errc::out_of_memory, "store remote: no memory to send {} bytes", flight->bytes));
  }
}

void RemoteStore::Worker::answered(const FlightPointer& flight) {
  const redisReply& last = *flight->answers.back();
  const redisReply& first = *flight->answers.front();
  if (is_error(last)) return refused(flight, text_of(last));
  // That of a put or an erase only says what was there.
  if (is_error(first) && !flight->writes) return refused(flight, text_of(first));
  const PageOutcome outcome = read_answers(*flight->work.request, flight->answers);
  count(*flight->work.request, outcome);
  finish(flight, outcome.status);
}

void RemoteStore::Worker::refused(const FlightPointer& flight, std::string_view error) {
  if (says_map_is_old(error)) nodes_.doubt_map();
  const auto redirect = redirect_of(error, flight->node_host);
  if (!redirect || ++flight->redirects > redirects_max) {
    const Status refused = tl::unexpected(refusal(error));
    count(*flight->work.request, {.status = refused});
    return finish(flight, refused);
  }
  {
    const std::scoped_lock lock(mutex_);
    ++state_.redirects;
  }
  flight->asks_once = redirect->asks_once;
  go(flight, nodes_.follow(*redirect));
}

void RemoteStore::Worker::end_late(TimePoint now) {
  while (!flights_.empty() && flights_.begin()->first <= now) {
    finish(FlightPointer(flights_.begin()->second), late());
  }
}

void RemoteStore::Worker::wait_for_events(Duration longest) {
  const TimePoint now = time_now();
  TimePoint until = std::min(now + longest, nodes_.next_time());
  if (!flights_.empty()) until = std::min(until, flights_.begin()->first);
  const Duration wait = std::max(until - now, Duration{});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (wait - seconds).count()};
  polls_.clear();
  nodes_.add_polls(polls_);
  polls_.push_back({.fd = wake_->descriptor(), .events = POLLIN, .revents = 0});
  const int count = ::ppoll(polls_.data(), polls_.size(), &time, nullptr);
  if (polls_.back().revents != 0) wake_->clear();
  polls_.pop_back();
  if (count < 0) polls_.clear();  // a signal came
}

void RemoteStore::Worker::count(const PageRequest& request, const PageOutcome& outcome) {
  const std::scoped_lock lock(mutex_);
  if (!outcome.status) {
    if (outcome.status.error().code == Errc::corrupt) ++state_.corrupt;
    return;
  }
  const bool is_put = request.verb == PageVerb::put;
  if (!is_put && request.verb != PageVerb::erase) return;
  if (is_put && outcome.bytes_before == 0) ++usage_.pages;
  if (!is_put && usage_.pages > 0) --usage_.pages;
  if (is_put) usage_.page_bytes += request.bytes;
  usage_.page_bytes -= std::min<std::uint64_t>(usage_.page_bytes, outcome.bytes_before);
  usage_.used_bytes = usage_.page_bytes;
  usage_.free_bytes = no_limit - usage_.used_bytes;
}

void RemoteStore::Worker::finish(const FlightPointer& flight, const Status& status) {
  flights_.erase(flight->place);
  flight->is_over = true;
  flight->answers.clear();
  const PageWork work = std::exchange(flight->work, {});
  if (work.is_background()) {
    --background_flights_;
    background_bytes_ -= flight->bytes;
  }
  order_.give_up(work.request->key);
  conclude(work, status);
}

void RemoteStore::Worker::conclude(const PageWork& work, const Status& status) {
  work.request->status = status;
  if (--work.batch->left == 0) batches_.finish(*work.batch);
}

}  // namespace terrace::offload
