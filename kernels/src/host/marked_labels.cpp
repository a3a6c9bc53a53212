#include "host/marked_labels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/marked_labels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

std::size_t marked_of(const std::uint32_t* labels, std::size_t count, const std::uint32_t* marks,
                      std::uint32_t* found) {
  const hn::CappedTag<std::uint32_t, lanes> tag;
  const hn::RebindToSigned<decltype(tag)> places;
  std::size_t listed = 0;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto at = hn::BitCast(places, hn::LoadU(tag, labels + i));
    const auto marked = hn::Ne(hn::GatherIndex(tag, marks, at), hn::Zero(tag));
    if (hn::AllFalse(tag, marked)) continue;
    for (std::size_t k = i; k < i + lanes; ++k) {
      found[listed] = static_cast<std::uint32_t>(k);
      listed += marks[labels[k]] != 0 ? 1 : 0;
    }
  }
  for (; i < count; ++i) {
    found[listed] = static_cast<std::uint32_t>(i);
    listed += marks[labels[i]] != 0 ? 1 : 0;
  }
  return listed;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(marked_of);

std::size_t find_marked(const std::uint32_t* labels, std::size_t count, const std::uint32_t* marks,
                        std::uint32_t* found) noexcept {
  return HWY_DYNAMIC_DISPATCH(marked_of)(labels, count, marks, found);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
