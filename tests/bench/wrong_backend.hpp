// The host's backend, but for one op, which is wrong: a benchmark has to notice.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "terrace/offload/host_backend.hpp"
#include "terrace/offload/host_ops.hpp"

namespace terrace::bench {

enum class WrongOp {
  decode_attention,
  tile_attention,
  store_pieces,  ///< rows of several tokens, where tokens of other sequences are stored beside them
};

class WrongBackend final : public Backend {
 public:
  explicit WrongBackend(WrongOp wrong)
      : inner_(offload::HostBackend::create({}).value()), ops_(inner_->ops()) {
    switch (wrong) {
      case WrongOp::decode_attention:
        ops_.decode_attention = &attend_wrongly;
        break;
      case WrongOp::tile_attention:
        ops_.tile_attention = &attend_to_tiles_wrongly;
        break;
      case WrongOp::store_pieces:
        ops_.store_rows = &store_wrongly;
        break;
    }
  }

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] Capabilities capabilities() const noexcept override {
    return inner_->capabilities();
  }
  [[nodiscard]] const Ops& ops() const noexcept override { return ops_; }
  [[nodiscard]] const Clock& clock() const noexcept override { return inner_->clock(); }
  [[nodiscard]] Parallel& device_threads() noexcept override { return inner_->device_threads(); }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override {
    return inner_->make_queue(options);
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override {
    return inner_->make_host_queue(options);
  }
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override {
    return inner_->memory(tier);
  }
  void reset_peak() noexcept override { inner_->reset_peak(); }

 private:
  static Result<Ticket> attend_wrongly(Queue& queue, Phase phase,
                                       std::span<const DecodeAttention> calls) {
    std::vector<DecodeAttention> wrong(calls.begin(), calls.end());
    for (DecodeAttention& call : wrong) call.scale = -call.scale;
    return offload::host_ops().decode_attention(queue, phase, wrong);
  }

  static Result<Ticket> attend_to_tiles_wrongly(Queue& queue, Phase phase,
                                                std::span<const TileAttention> calls) {
    std::vector<TileAttention> wrong(calls.begin(), calls.end());
    for (TileAttention& call : wrong) call.scale = -call.scale;
    return offload::host_ops().tile_attention(queue, phase, wrong);
  }

  static Result<Ticket> store_wrongly(Queue& queue, Phase phase, std::span<const StoreRows> calls) {
    std::vector<StoreRows> wrong(calls.begin(), calls.end());
    // Those that decode: a piece alone has several calls, too.
    const auto decodes = [](const StoreRows& call) { return call.tokens.size() == 1; };
    const bool beside_others = std::ranges::any_of(calls, decodes);
    for (StoreRows& call : wrong) {
      if (!beside_others || decodes(call)) continue;
      std::swap(call.source.keys, call.source.values);
    }
    return offload::host_ops().store_rows(queue, phase, wrong);
  }

  Result<std::byte*> do_allocate(const AllocationRequest& request) override {
    TERRACE_ASSIGN(Buffer buffer, inner_->allocate(request));
    std::byte* const data = buffer.data();
    const std::lock_guard lock(mutex_);
    buffers_.push_back(std::move(buffer));
    return data;
  }
  void do_release(std::byte* data, const AllocationRequest& /*request*/) noexcept override {
    const std::lock_guard lock(mutex_);
    std::erase_if(buffers_, [data](const Buffer& buffer) { return buffer.data() == data; });
  }

  std::unique_ptr<Backend> inner_;
  Ops ops_;
  std::mutex mutex_;
  std::vector<Buffer> buffers_;
};

}  // namespace terrace::bench
