// Full attention: the window is the whole sequence, resident in device memory. The baseline that
// every other policy's quality and time are compared with.
#include "rows.hpp"
#include "without_index.hpp"

namespace terrace::policies {

MadeRetrievalPolicy make_full(const RetrievalOptions& /*options*/) {
  return std::make_unique<WithoutIndex>(
      RetrievalTraits{.name = "full", .selects = false, .keeps_everything = true});
}

}  // namespace terrace::policies
