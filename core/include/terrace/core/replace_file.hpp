// Writing a file whole or not at all. If a path is a link, the file that it leads to is written,
// and the link stays; a path to anything but a regular file is left alone. A file keeps its
// permissions, and a new file has those that the process gives its files.
#pragma once

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace {

/// A file that is written under a temporary name beside its own, so that no process reads half of
/// it. Several files can all be written before the first is published. A file not published is
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

  /// Writes more. close() returns the first failure; bytes appended after it are not written.
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
  /// The place in which remove_pending_files() finds its name; null = no place was free.
  std::atomic<const std::string*>* place_ = nullptr;
};

/// Removes what all PendingFiles hold, which can then not be published: for the handler of a signal
/// that ends the program, where no destructor runs. The library itself handles no signal.
///
/// Threads  any; safe in a signal's handler
/// Limits   knows of 64 files at a time; a file that another thread is just opening may stay
void remove_pending_files() noexcept;

/// Gives files their names, in order. A file that fails here, though check_replaceable() found
/// nothing wrong, leaves the files before it published. Errors: the first of
/// PendingFile::publish().
[[nodiscard]] Status publish_all(std::vector<PendingFile>& files);

/// Writes `content` under a temporary name beside `path` and renames it, so that no process ever
/// reads half of it and an error leaves the old content.
///
/// Errors   io_error naming the file and the reason
[[nodiscard]] Status replace_file(const std::string& path, std::string_view content);

/// Returns the error that replace_file() is sure to have for `path`, so that a caller can ask
/// before a long computation: writes a few bytes beside it, and removes them.
///
/// Errors   io_error naming the file: a folder, a device or a pipe; or in a folder that does not
///          exist or may not be written, or that lies on a full or read-only disk
[[nodiscard]] Status check_replaceable(const std::string& path);

/// A file as the user named it: {"--report", "tuned.html"}. No path: the user named no file.
struct NamedFile {
  std::string_view name = {};
  std::string path = {};
};

/// Checks beforehand whether a target would be written over a source or over another target, by
/// whichever paths they are named, and whether replace_file() is sure to fail for a target.
///
/// Errors   invalid_argument naming both files; those of check_replaceable()
[[nodiscard]] Status check_targets(const std::vector<NamedFile>& targets,
                                   const std::vector<NamedFile>& sources);

}  // namespace terrace
