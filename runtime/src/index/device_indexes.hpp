// Where steps read the indexes of a sequence: resident in device memory, where only increments
// move, or streamed there one layer ahead.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/queue.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class Layer;
class RuntimePlan;
class SequenceProgress;
struct SequenceWork;

using LayerSpan = std::span<const std::unique_ptr<Layer>>;

class DeviceIndexes {
 public:
  DeviceIndexes(const RuntimePlan& plan, const SequenceProgress& progress, SequenceWork& work,
                LayerSpan layers) noexcept
      : plan_(plan), progress_(progress), work_(work), layers_(layers) {}
  DeviceIndexes(const DeviceIndexes&) = delete;
  DeviceIndexes& operator=(const DeviceIndexes&) = delete;
  virtual ~DeviceIndexes() = default;

  [[nodiscard]] virtual bool streams() const noexcept = 0;

  /// Makes room for indexes of so many chunks. Errors: out_of_memory, not_ready.
  virtual Status reserve(std::size_t chunks) = 0;
  /// Gives up memory after the first `chunks` chunks. No work may read it.
  virtual void trim(std::size_t chunks) = 0;
  /// Gives all device memory up.
  virtual void reset() = 0;

  // Changes on the host.

  /// Notes that chunks of `tokens` have to be copied, and the fixed part. Returns the bytes.
  virtual Result<std::size_t> stage(Layer& layer, TokenRange tokens, bool with_fixed) = 0;
  /// Enqueues all copies that were noted, in one.
  virtual Status send() = 0;
  virtual void forget_staged() noexcept {}
  /// The device's copy may lack something.
  virtual void mark_stale(const Layer& layer) = 0;
  /// Enqueues the copying of all of a stale index. Returns the bytes; 0 where it is not stale.
  virtual Result<std::size_t> renew(Layer& layer) = 0;

  // A step.

  /// Begins to bring a layer's index to the device, ahead of the layer, for tokens up to the one at
  /// `position`.
  virtual Status prefetch(Layer& layer, std::size_t position) = 0;
  /// The index that a step reads, for work that is enqueued on `compute` from now on.
  virtual Result<IndexView> view(Layer& layer, Queue& compute) = 0;
  /// The last work that reads view() of a layer.
  virtual void note_read(const Layer& layer, Ticket read) noexcept = 0;
  /// All work of the step is done.
  virtual void end_step() noexcept {}
  /// Queues have stopped, and may have failed: tables are copied anew.
  virtual void come_to_rest() = 0;

 protected:
  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  LayerSpan layers_;
};

}  // namespace terrace
