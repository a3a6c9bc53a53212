// A block device for tests, where the system lets this process make one.
#pragma once

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

namespace terrace::offload {

/// A block device over a file.
class LoopDevice {
 public:
  explicit LoopDevice(const std::string& file) {
    const int control = ::open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int number = control < 0 ? -1 : ::ioctl(control, LOOP_CTL_GET_FREE);
    if (control >= 0) ::close(control);
    if (number < 0) return;
    path_ = "/dev/loop" + std::to_string(number);
    const int back = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    device_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    if (device_ >= 0 && ::ioctl(device_, LOOP_SET_FD, back) != 0) {
      ::close(device_);
      device_ = -1;
    }
    ::close(back);
  }
  LoopDevice(const LoopDevice&) = delete;
  LoopDevice& operator=(const LoopDevice&) = delete;
  ~LoopDevice() {
    if (device_ < 0) return;
    ::ioctl(device_, LOOP_CLR_FD);
    ::close(device_);
  }
  [[nodiscard]] bool is_there() const noexcept { return device_ >= 0; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  int device_ = -1;
};

}  // namespace terrace::offload
