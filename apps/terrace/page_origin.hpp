// How this process came to write a page: its command line, its build and the time.
#pragma once

#include <span>
#include <string>

#include "terrace/tuning/page.hpp"

namespace terrace::apps {

/// `quick`: as PageOrigin::quick. A system that does not say the command line gives none.
tuning::PageOrigin page_origin(bool quick = false);

/// Returns a command line as one types it in a shell: what is more than a plain word stands
/// between quotes, passwords in URLs are left out, and of the program's path the name is left.
std::string spell_command(std::span<const std::string> arguments);

}  // namespace terrace::apps
