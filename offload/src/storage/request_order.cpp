#include "request_order.hpp"

#include <iterator>
#include <utility>

namespace terrace::offload {

bool PageWork::shares_key() const noexcept {
  const PageVerb verb = request->verb;
  return !drops_page &&
         (verb == PageVerb::get || verb == PageVerb::get_part || verb == PageVerb::find);
}

bool RequestOrder::can_go_on(const Line& line) noexcept {
  if (line.waiting.empty()) return false;
  return line.holding == 0 || (!line.held_alone && line.waiting.front().shares_key());
}

void RequestOrder::place(Lines::iterator line) {
  if (line->waiting.empty() && line->holding == 0) {
    lines_.erase(line->key);
    line->place->erase(line);
    return;
  }
  Lines& right = !can_go_on(*line) ? held_ : line->awaited > 0 ? awaited_ : background_;
  if (line->place == &right) return;
  right.splice(right.end(), *std::exchange(line->place, &right), line);
}

void RequestOrder::add(PageWork work) {
  const auto [found, is_new] = lines_.try_emplace(work.request->key);
  if (is_new) {
    found->second = held_.insert(held_.end(), {.key = work.request->key, .place = &held_});
  }
  Line& line = *found->second;
  if (!work.is_background()) ++line.awaited;
  line.waiting.push_back(std::move(work));
  place(found->second);
}

std::optional<PageWork> RequestOrder::next(bool with_background) {
  Lines& from = awaited_.empty() && with_background ? background_ : awaited_;
  if (from.empty()) return std::nullopt;
  const auto line = from.begin();
  PageWork work = std::move(line->waiting.front());
  line->waiting.pop_front();
  if (!work.is_background()) --line->awaited;
  ++line->holding;
  line->held_alone = !work.shares_key();
  place(line);
  return work;
}

void RequestOrder::let_go(Line& line) {
  --line.holding;
  line.held_alone = false;
}

void RequestOrder::give_up(PageKey key) {
  const auto line = lines_.at(key);
  let_go(*line);
  place(line);
}

void RequestOrder::begin_again(PageWork work) {
  const auto line = lines_.at(work.request->key);
  let_go(*line);
  if (!work.is_background()) ++line->awaited;
  line->waiting.push_front(std::move(work));
  place(line);
}

void RequestOrder::take_out(const std::function<bool(const PageWork&)>& is_meant) {
  for (Lines* const lines : {&awaited_, &background_, &held_}) {
    for (auto line = lines->begin(); line != lines->end();) {
      const auto here = line++;
      std::erase_if(here->waiting, [&](const PageWork& work) {
        if (!is_meant(work)) return false;
        if (!work.is_background()) --here->awaited;
        return true;
      });
    }
  }
  for (Lines* const lines : {&awaited_, &background_, &held_}) {
    for (auto line = lines->begin(); line != lines->end();) place(line++);
  }
}

}  // namespace terrace::offload
