// The rules of safetensors files, as a judge of readers: those that the reference implementation
// (safetensors 0.8.0 of PyPI) applies, and one of the format that it leaves out: no key comes twice
// in an object.
#pragma once

#include <string>
#include <string_view>

namespace terrace {

/// Why a file is no safetensors file; empty where it is one.
std::string safetensors_flaw(std::string_view file);

}  // namespace terrace
