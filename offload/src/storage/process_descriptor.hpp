// A descriptor of this process alone: a child that fork() makes has it closed.
//
// A file stays open, and its lock held, while any process has a copy of the descriptor; a child
// that lives longer than its parent would lock a file that it does not use.
#pragma once

namespace terrace::offload {

/// Threads  safe from any thread
class ProcessDescriptor {
 public:
  /// Takes over a descriptor that is open.
  explicit ProcessDescriptor(int descriptor);
  ProcessDescriptor(const ProcessDescriptor&) = delete;
  ProcessDescriptor& operator=(const ProcessDescriptor&) = delete;
  /// Closes it.
  ~ProcessDescriptor();

  /// Returns the descriptor; -1 in a child.
  [[nodiscard]] int get() const noexcept { return descriptor_; }
  /// Leaves it to the caller, with all copies that children get from now on.
  int release() noexcept;

 private:
  static void close_all_in_child() noexcept;

  int descriptor_;
};

}  // namespace terrace::offload
