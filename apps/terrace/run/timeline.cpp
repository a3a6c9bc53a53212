#include "run/timeline.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace terrace::apps {
namespace {

double microseconds(Duration duration) { return seconds(duration) * 1e6; }

nlohmann::json name_of(const char* what, std::size_t process, std::size_t thread,
                       const std::string& name) {
  return {
      {"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

void Timeline::record(const std::string& policy) {
  const std::lock_guard lock(mutex_);
  policies_.push_back(policy);
  recording_.store(true, std::memory_order_relaxed);
}

void Timeline::on_work(const WorkRecord& record) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  auto queue = std::find(queues_.begin(), queues_.end(), record.queue);
  if (queue == queues_.end()) queue = queues_.insert(queue, std::string(record.queue));
  events_.push_back({policies_.size() - 1, static_cast<std::size_t>(queue - queues_.begin()),
                     record.phase, record.begin, record.end, record.bytes});
}

Result<PendingFile> Timeline::write(const std::filesystem::path& file) const {
  const std::lock_guard lock(mutex_);
  nlohmann::json events = nlohmann::json::array();
  for (std::size_t policy = 0; policy < policies_.size(); ++policy) {
    events.push_back(name_of("process_name", policy, 0, policies_[policy]));
    for (std::size_t queue = 0; queue < queues_.size(); ++queue) {
      events.push_back(name_of("thread_name", policy, queue, queues_[queue]));
    }
  }
  for (const Event& event : events_) {
    events.push_back({{"ph", "X"},
                      {"name", to_string(event.phase)},
                      {"pid", event.policy},
                      {"tid", event.queue},
                      {"ts", microseconds(event.begin.time_since_epoch())},
                      {"dur", microseconds(event.end - event.begin)},
                      {"args", {{"bytes", event.bytes}}}});
  }
  const nlohmann::json document = {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  return PendingFile::write(file, document.dump() + '\n');
}

}  // namespace terrace::apps
