// A file that is gone with the process, whatever ends it.
#pragma once

#include <cstdint>
#include <string>

namespace terrace::bench {

/// A file of zeros without a name.
class NamelessFile {
 public:
  NamelessFile(const std::string& folder, std::uint64_t bytes);
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  ~NamelessFile();

  /// Why there is none, as an errno; 0 = there is.
  [[nodiscard]] int failure() const noexcept { return failure_; }
  /// A path by which it is opened while this object lives.
  [[nodiscard]] std::string path() const;

 private:
  int descriptor_ = -1;
  int failure_ = 0;
};

}  // namespace terrace::bench
