#include "resident_pages.hpp"

namespace terrace::offload {

PageHandle ResidentPages::share(const BytesName& name) {
  const auto found = pages_.find(name);
  if (found == pages_.end()) return PageHandle::hole();
  ++found->second.holders;
  pool_.share(found->second.page);
  return found->second.page;
}

PageHandle ResidentPages::note(const BytesName& name, PageHandle page) {
  const PageHandle other = share(name);
  if (other.is_hole()) {
    pages_.emplace(name, Resident{.page = page});
    return page;
  }
  pool_.release(page);
  return other;
}

void ResidentPages::add_holder(const BytesName& name, PageHandle page) {
  if (const Entry found = find(name, page); found != pages_.end()) ++found->second.holders;
}

void ResidentPages::give_back(const BytesName& name, PageHandle page) noexcept {
  const Entry found = find(name, page);
  if (found != pages_.end() && --found->second.holders == 0) pages_.erase(found);
  pool_.release(page);
}

void ResidentPages::forget(const BytesName& name, PageHandle page) noexcept {
  if (const Entry found = find(name, page); found != pages_.end()) pages_.erase(found);
}

ResidentPages::Entry ResidentPages::find(const BytesName& name, PageHandle page) {
  const Entry found = pages_.find(name);
  return found == pages_.end() || found->second.page == page ? found : pages_.end();
}

}  // namespace terrace::offload
