// Writing a file whole or not at all. Where a path is a link, the file that it leads to is written,
// and the link stays; a path to anything but a regular file is left alone. A file keeps the
// permissions that it had, and a new one has those that the process gives its files.
#pragma once

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace {

/// A file that is written under a temporary name beside its own, so that nobody reads half of it:
/// of several files all are written before the first is published. A file not published is
/// removed. The temporary name is random, and no file or link of that name is ever written to, so
/// that writers of one file in many containers never meet.
///
/// Threads  one at a time
class PendingFile {
 public:
  /// Opens an empty file beside `path`, or beside what that links to.
  /// Errors: io_error naming the file and the system's reason.
  [[nodiscard]] static Result<PendingFile> create(const std::string& path);

  /// Writes a file whole. Errors: as create() and close().
  [[nodiscard]] static Result<PendingFile> write(const std::string& path, std::string_view content);

  PendingFile(PendingFile&& other) noexcept = default;
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile();

  /// Writes more. close() tells of the first failure; what comes behind it is not written.
  void append(std::string_view bytes);

  /// Ends the writing. Errors: io_error naming the file and the reason why it is not whole.
  [[nodiscard]] Status close();

  /// Closes the file, if it is open, and gives it its name. Errors: as close().
  [[nodiscard]] Status publish();

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  PendingFile(std::string path, std::string temporary);
  void forget() noexcept;

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> stream_;  ///< null = closed
  int failure_ = 0;                               ///< errno of the first write that failed
  std::unique_ptr<const std::string> temporary_;  ///< null = nothing is pending
  /// Where remove_pending_files() finds its name; null = no place was free.
  std::atomic<const std::string*>* place_ = nullptr;
};

/// Removes what all PendingFiles hold, which can then not be published: for the handler of a signal
/// that ends the program, where no destructor runs. The library itself handles no signal.
///
/// Threads  any; safe in a signal's handler
/// Limits   knows of 64 files at a time; one that another thread is opening meanwhile may stay
void remove_pending_files() noexcept;

/// Gives files their names, in order. A file that fails here, though check_replaceable() found
/// nothing wrong, leaves the files before it published. Errors: the first of
/// PendingFile::publish().
[[nodiscard]] Status publish_all(std::vector<PendingFile>& files);

/// Writes `content` under a temporary name beside `path` and renames it, so that nobody ever reads
/// half of it and an error leaves what was there.
///
/// Errors   io_error naming the file and the reason
[[nodiscard]] Status replace_file(const std::string& path, std::string_view content);

/// Says beforehand what is sure to keep replace_file() from writing `path`, so that no work is done
/// in vain: writes a few bytes beside it, and removes them.
///
/// Errors   io_error naming the file: a folder, a device or a pipe; or in a folder that is not
///          there or may not be written, or whose disk is full or cannot be written
[[nodiscard]] Status check_replaceable(const std::string& path);

/// A file as someone named it: {"--report", "tuned.html"}. No path: none was named.
struct NamedFile {
  std::string_view name = {};
  std::string path = {};
};

/// Says beforehand whether a target would be written over a source or over another target, by
/// whatever path each is named, and whether replace_file() is sure to fail for one of them.
///
/// Errors   invalid_argument naming both files; those of check_replaceable()
[[nodiscard]] Status check_targets(const std::vector<NamedFile>& targets,
                                   const std::vector<NamedFile>& sources);

}  // namespace terrace
