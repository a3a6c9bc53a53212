// The smallest program that embeds Terrace.
#include <cstdio>

#include "terrace/core/bytes.hpp"
#include "terrace/core/version.hpp"
#include "terrace/runtime/config.hpp"

int main() {
  const auto config = terrace::load_config({.flags = {"device.memory=8GiB"}});
  if (!config || config->size_bytes("device.memory") != terrace::parse_size("8GiB").value())
    return 1;
  std::printf("terrace %s built with %s\n", terrace::version().data(),
              terrace::build_info().compiler.data());
  return 0;
}
