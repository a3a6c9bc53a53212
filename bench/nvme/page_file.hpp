// A file of blocks with their own numbers in them, and traffic over it that checks every block.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nvme/nameless_file.hpp"
#include "terrace/core/clock.hpp"
#include "terrace/offload/file_queue.hpp"

namespace terrace::bench {

struct Traffic {
  bool writes = false;
  bool scattered = false;  ///< pages in a random order, as a selection wants them
  std::size_t page_bytes = 4096;
  std::size_t depth = 1;  ///< transfers under way
};

struct TrafficFigures {
  double bytes_per_second = 0;
  double cpu_seconds_per_request = 0;  ///< of the whole process
};

/// Threads  one at a time
class PageFile {
 public:
  /// Makes a file in a folder and fills it. The file has no name from then on, so that it vanishes
  /// with the process. Errors: those of NamelessFile::create, StorageFile::open and of transfers.
  [[nodiscard]] static Result<std::unique_ptr<PageFile>> create(const std::string& folder,
                                                                std::uint64_t bytes);

  /// Has traffic go on for at least `time`. Each page that is read is known by its first block's
  /// number; after it all blocks are read and compared whole, outside the time.
  ///
  /// Errors   corrupt: a block is not what was written; those of transfers
  [[nodiscard]] Result<TrafficFigures> run(const Traffic& traffic, Duration time);

  /// A path by which another program opens the file while this object lives.
  [[nodiscard]] std::string path() const { return nameless_.path(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return file_.bytes(); }
  [[nodiscard]] bool direct() const noexcept { return file_.direct(); }
  [[nodiscard]] const std::string& engine() const noexcept { return engine_; }

 private:
  class Passage;

  PageFile(NamelessFile nameless, offload::StorageFile file)
      : nameless_(std::move(nameless)), file_(std::move(file)) {}
  /// Writes each block, or reads and compares each whole.
  Status pass(bool writes);

  NamelessFile nameless_;
  offload::StorageFile file_;
  std::string engine_;
  std::uint32_t round_ = 0;            ///< of writing: each leaves other bytes
  std::vector<std::uint32_t> rounds_;  ///< by block: which one it was written in last
};

}  // namespace terrace::bench
