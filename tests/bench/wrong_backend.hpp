// The host's backend, but for one op, which is wrong: a benchmark has to notice.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "doubles/wrapped_backend.hpp"
#include "terrace/offload/host_backend.hpp"
#include "terrace/offload/host_ops.hpp"

namespace terrace::bench {

enum class WrongOp {
  decode_attention,
  tile_attention,
  store_pieces,  ///< rows of several tokens, where tokens of other sequences are stored beside them
};

class WrongBackend final : public doubles::WrappedBackend {
 public:
  explicit WrongBackend(WrongOp wrong)
      : WrappedBackend(offload::HostBackend::create({}).value()), ops_(inner().ops()) {
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

  [[nodiscard]] const Ops& ops() const noexcept override { return ops_; }

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
    // Only batches of decoding tokens: a piece alone has several calls, too.
    const auto decodes = [](const StoreRows& call) { return call.tokens.size() == 1; };
    const bool beside_others = std::ranges::any_of(calls, decodes);
    for (StoreRows& call : wrong) {
      if (!beside_others || decodes(call)) continue;
      std::swap(call.source.keys, call.source.values);
    }
    return offload::host_ops().store_rows(queue, phase, wrong);
  }

  Ops ops_;
};

}  // namespace terrace::bench
