// A question about an op of a backend: calls of it, one after the other, as a device has them from
// a step. The time of a call is that of the device where the device takes longer than enqueueing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device_ops/device.hpp"
#include "harness/question.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::bench {

/// The layer whose ops are measured: that of Llama 3.1 8B.
inline constexpr KvShape measured_layer{
    .layers = 1, .query_heads = 32, .kv_heads = 8, .head_dim = 128, .dtype = Dtype::f16};

/// An op with its memory on a device.
class MeasuredOp {
 public:
  /// `bytes`: that a call has to read of rows and indexes, or to move.
  MeasuredOp(std::shared_ptr<MeasuredDevice> device, std::size_t bytes)
      : device_(std::move(device)), bytes_(bytes) {}
  MeasuredOp(const MeasuredOp&) = delete;
  MeasuredOp& operator=(const MeasuredOp&) = delete;
  virtual ~MeasuredOp() = default;

  [[nodiscard]] virtual Result<Ticket> enqueue() = 0;
  /// Compares results with those of the host's kernels.
  [[nodiscard]] virtual Status verify() = 0;
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Takes so many calls, and waits for them.
  void run(std::size_t calls);
  [[nodiscard]] Status status() const { return status_; }

 protected:
  [[nodiscard]] MeasuredDevice& device() const noexcept { return *device_; }

 private:
  std::shared_ptr<MeasuredDevice> device_;
  std::size_t bytes_;
  Status status_;
};

/// Makes an op among `tokens` tokens.
using MakeOp = std::function<Result<std::shared_ptr<MeasuredOp>>(std::shared_ptr<MeasuredDevice>,
                                                                 std::size_t tokens)>;

/// The device that questions are about.
struct DeviceSettings {
  MakeBackend make;
  Duration patience = std::chrono::minutes(1);
};

/// Returns questions about an op, `device_NAME_n16384` and `..._n131072`.
std::vector<Question> questions_of_op(const std::string& name, const DeviceSettings& settings,
                                      const MakeOp& make);

}  // namespace terrace::bench
