// A store over a disk in memory, and where in it things lie.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "contract/fuzz.hpp"
#include "core/temporary_folder.hpp"
#include "offload/disk_image.hpp"
#include "offload/stored_pages.hpp"
#include "terrace/offload/nvme_store.hpp"

namespace terrace::offload {

/// Where the parts of a container of so many pages lie: two superblocks, 64 pairs of blocks of the
/// journal, two snapshots of four blocks.
inline constexpr std::size_t block = StorageFile::alignment;
constexpr std::size_t journal_copy(std::size_t number, std::size_t copy) {
  return (2 + number * 2 + copy) * block;
}
inline constexpr std::size_t snapshot_blocks = 4;
constexpr std::size_t snapshot(std::size_t generation) {
  return (130 + generation % 2 * snapshot_blocks) * block;
}
inline constexpr std::size_t first_page = snapshot(1) + snapshot_blocks * block;

/// Over a disk in memory that can be damaged.
class NvmeImageTest : public testing::Test {
 protected:
  static constexpr std::uint64_t pages_max = 100;
  static constexpr std::size_t depth = 6;

  Result<std::unique_ptr<NvmeStore>> try_to_open_image() {
    return NvmeStore::open(
        {.file = {.path = folder_ / "pages", .bytes = file_bytes},
         .pages_max = pages_max,
         .part_bytes = block,  // so that small pages have several
         .queue = {.depth = depth, .patience = std::chrono::seconds(1)},
         .open_queue = [this](const StorageFile& file, const FileQueueOptions& options) {
           return Result<std::unique_ptr<FileQueue>>(
               std::make_unique<ImageQueue>(file, options, image_));
         }});
  }
  std::unique_ptr<NvmeStore> open_image() { return try_to_open_image().value(); }
  static std::size_t rounded(std::uint64_t key) {
    return (content(key, 0).size() + StorageFile::alignment - 1) / StorageFile::alignment *
           StorageFile::alignment;
  }
  /// Returns the first key from `from` on whose page has more than three blocks.
  static std::uint64_t key_of_large_page(std::uint64_t from) {
    while (content(from, 0).size() <= 3 * block) ++from;
    return from;
  }
  TemporaryFolder folder_;
  DiskImage image_{file_bytes, fuzz_seed(3)};
};

/// Gets of page 1, each with memory of its own.
struct SomeGets {
  explicit SomeGets(std::size_t count) : targets(count, Bytes(content(1, 1).size())) {
    for (Bytes& target : targets) batch.push_back(request(PageVerb::get, 1, target));
  }
  [[nodiscard]] bool is_cancelled(std::size_t i) const {
    return !batch[i].status && batch[i].status.error().code == Errc::cancelled &&
           targets[i] == Bytes(targets[i].size());
  }
  std::vector<Bytes> targets;
  std::vector<PageRequest> batch;
};

}  // namespace terrace::offload
