#include "sequence_work.hpp"

#include <algorithm>
#include <array>

namespace terrace {

Status SequenceWork::await(WaitReason reason, const Ticket& ticket, Duration patience) {
  if (poll(ticket).value_or(false)) return {};  // no wait to count
  const TimePoint begin = clock().now();
  Status done = wait(ticket, patience);
  count_wait(reason, begin);
  return done;
}

void SequenceWork::count_upkeep(TimePoint begin) {
  const Duration taken = clock().now() - begin;
  counters.upkeep += taken;
  if (poll(computed).value_or(true)) counters.upkeep_waited += taken;
}

Status SequenceWork::copy_now(Queue& queue, Phase why, std::span<const CopyExtent> extents,
                              Buffer& on_host) {
  TERRACE_ASSIGN(const Ticket copied, queue.copy(why, extents));
  const Status done = await(WaitReason::copy, copied);
  if (!done) abandoned.push_back(std::move(on_host));
  return done;
}

Error SequenceWork::named(std::string_view call, const Error& error) const {
  std::array<char, 64> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "{} of sequence {}", call, index(id));
  return error.while_doing({text.data(), std::min(end.size, text.size())});
}

}  // namespace terrace
