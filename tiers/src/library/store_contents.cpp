#include "store_contents.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace terrace::tiers {
namespace {

constexpr std::size_t finds_at_once = 4096;
constexpr std::size_t reads_at_once = 256;
constexpr std::size_t bytes_at_once = std::size_t{16} << 20;

using PageSizes = std::unordered_map<PageKey, std::size_t, PageKeyHash>;
using PageSet = std::unordered_set<PageKey, PageKeyHash>;

struct SizedPage {
  std::size_t bytes = 0;
  PageKey key = {};
  auto operator<=>(const SizedPage&) const = default;
};

Result<PageSizes> sizes_of(offload::StoreCalls& calls, std::span<const PageKey> pages) {
  PageSizes sizes;
  sizes.reserve(pages.size());
  while (!pages.empty()) {
    const auto some = pages.first(std::min(pages.size(), finds_at_once));
    TERRACE_ASSIGN(const std::vector<std::size_t> bytes, calls.sizes_of(some));
    for (std::size_t i = 0; i < some.size(); ++i) sizes.emplace(some[i], bytes[i]);
    pages = pages.subspan(some.size());
  }
  return sizes;
}

/// Pages that may be manifests by their size, small ones first.
std::vector<SizedPage> candidates(const PageSizes& sizes) {
  std::vector<SizedPage> pages;
  for (const auto& [key, bytes] : sizes) {
    if (Manifest::may_have(bytes)) pages.push_back({.bytes = bytes, .key = key});
  }
  std::ranges::sort(pages);
  return pages;
}

/// Takes the next pages that are in no chunk yet, and that may be read at once.
std::vector<PageKey> take_some(std::span<const SizedPage>& pages, const PageSet& taken) {
  std::vector<PageKey> some;
  std::size_t bytes = 0;
  while (!pages.empty() && some.size() < reads_at_once) {
    const SizedPage& page = pages.front();
    if (!taken.contains(page.key)) {
      if (!some.empty() && page.bytes > bytes_at_once - bytes) break;
      bytes += std::min(page.bytes, bytes_at_once - bytes);
      some.push_back(page.key);
    }
    pages = pages.subspan(1);
  }
  return some;
}

/// Whether all parts are there, and in no other chunk.
bool is_whole(const Manifest& manifest, const PageSizes& sizes, const PageSet& taken) {
  return std::ranges::all_of(manifest.parts(), [&](const Part& part) {
    const PageKey key = page_key(manifest.chunk(), part.name);
    const auto found = sizes.find(key);
    return found != sizes.end() && found->second == part.bytes && !taken.contains(key);
  });
}

}  // namespace

Result<StoreContents> read_contents(offload::StoreCalls& calls, std::span<const PageKey> pages) {
  TERRACE_ASSIGN(const PageSizes sizes, sizes_of(calls, pages));
  const std::vector<SizedPage> sorted = candidates(sizes);
  StoreContents contents;
  PageSet taken;
  for (std::span<const SizedPage> left = sorted; !left.empty();) {
    const std::vector<PageKey> some = take_some(left, taken);
    TERRACE_ASSIGN(const auto read, calls.read_all(some));
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (!read[i]) continue;
      Result<Manifest> manifest = Manifest::read(chunk_of_manifest(some[i]), *read[i]);
      if (!manifest || !is_whole(*manifest, sizes, taken)) continue;
      taken.insert(some[i]);
      for (const Part& part : manifest->parts()) {
        taken.insert(page_key(manifest->chunk(), part.name));
      }
      contents.chunks.push_back(*std::move(manifest));
    }
  }
  std::ranges::copy_if(pages, std::back_inserter(contents.rest),
                       [&](const PageKey& page) { return !taken.contains(page); });
  return contents;
}

}  // namespace terrace::tiers
