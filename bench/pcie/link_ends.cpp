#include "pcie/link_ends.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "pcie/row_places.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/core/version.hpp"

namespace terrace::bench {
namespace {

constexpr Duration patience = std::chrono::seconds(60);
constexpr std::byte spoilt{0x5a};

Phase phase_of(Direction direction, Method method) {
  if (direction == Direction::device_to_host) return Phase::offload;
  return method == Method::kernel ? Phase::fetch : Phase::refill;
}

double seconds_of(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::size_t moved_bytes(std::size_t bytes, std::size_t row_bytes) noexcept {
  constexpr std::size_t share = 4;  // of what there is one run moves so much less
  return std::max<std::size_t>(bytes / row_bytes / share, 1) * row_bytes;
}

std::string_view to_string(Direction direction) noexcept {
  return direction == Direction::host_to_device ? "host_to_device" : "device_to_host";
}

/// Bytes on their way, again and again: extents, or for a kernel the rows it is told of.
class LinkEnds::Transfer {
 public:
  Transfer(LinkEnds& ends, Direction direction, std::vector<CopyExtent> extents)
      : ends_(ends), direction_(direction), extents_(std::move(extents)) {}

  /// Lets a kernel move rows of `row_bytes`: it gathers from one end and writes to the other.
  Status use_kernel(std::size_t row_bytes) {
    const Buffer& source = direction_ == Direction::host_to_device ? ends_.host_source_  //
                                                                   : ends_.device_source_;
    std::vector<MissedRow> rows;
    rows.reserve(extents_.size());
    for (const CopyExtent& extent : extents_) {
      const auto at = static_cast<std::size_t>(extent.source - source.data());
      rows.push_back({static_cast<std::uint32_t>(at / row_bytes), 0, extent.target});
    }
    const auto count = static_cast<std::uint32_t>(rows.size());
    TERRACE_ASSIGN(missed_, ends_.upload<MissedRow>(rows));
    TERRACE_ASSIGN(missed_count_, ends_.upload<std::uint32_t>({&count, 1}));
    TERRACE_ASSIGN(table_,
                   ends_.backend_->allocate({.bytes = sizeof(std::byte*), .tier = Tier::host}));
    table_.as<std::byte*>()[0] = source.data();
    fetch_ = {.shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = row_bytes / 4},
              .missed = missed_.as<MissedRow>(),
              .missed_count = missed_count_.as<std::uint32_t>(),
              .source = {table_.as<std::byte*>(), ends_.bytes_ / row_bytes}};
    return {};
  }

  [[nodiscard]] double bytes() const {
    double sum = 0;
    for (const CopyExtent& extent : extents_) sum += static_cast<double>(extent.bytes);
    return sum;
  }

  void start() {
    Queue& on = queue();
    const auto ticket = missed_ ? ends_.backend_->ops().fetch_rows(on, Phase::fetch, fetch_)
                                : on.copy(phase_of(direction_, Method::copies), extents_);
    outcome_ = ticket ? Status{} : tl::unexpected(ticket.error());
  }
  void finish() {
    const Status done = queue().drain(patience);
    if (outcome_) outcome_ = done;
  }

  /// Compares what arrived with what was sent, and spoils it.
  Status verify() {
    TERRACE_TRY(outcome_);
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const CopyExtent& extent = extents_[i];
      std::byte* arrived = extent.target;
      const std::byte* sent = extent.source;
      if (direction_ == Direction::host_to_device) {
        // The host does not read device memory.
        arrived = ends_.check_.data() + (extent.target - ends_.device_target_.data());
        if (i == 0) TERRACE_TRY(fetch_back());
      } else {
        sent = ends_.host_source_.data() + (extent.source - ends_.device_source_.data());
      }
      if (std::memcmp(arrived, sent, extent.bytes) != 0) {
        return fail(Errc::corrupt, "piece {} of {} arrived different", i, extents_.size());
      }
      std::memset(arrived, static_cast<int>(spoilt), extent.bytes);
    }
    return direction_ == Direction::host_to_device ? spoil_device() : Status{};
  }

 private:
  [[nodiscard]] Queue& queue() const {
    return direction_ == Direction::host_to_device ? *ends_.towards_device_ : *ends_.towards_host_;
  }
  [[nodiscard]] std::size_t extent_of_targets() const {
    const CopyExtent& last = extents_.back();  // on the device they are side by side
    return static_cast<std::size_t>(last.target - ends_.device_target_.data()) + last.bytes;
  }
  Status fetch_back() {
    return ends_.copy(ends_.check_.data(), ends_.device_target_.data(), extent_of_targets());
  }
  Status spoil_device() {
    return ends_.copy(ends_.device_target_.data(), ends_.check_.data(), extent_of_targets());
  }

  LinkEnds& ends_;
  Direction direction_;
  std::vector<CopyExtent> extents_;
  Buffer missed_;
  Buffer missed_count_;
  Buffer table_;
  FetchRows fetch_{};
  Status outcome_;
};

/// Attention of one token over a cache on the device: work that a transfer goes on beside.
class LinkEnds::Attention {
 public:
  static constexpr KvShape shape{.layers = 1, .query_heads = 32, .kv_heads = 8, .head_dim = 128};
  static constexpr std::size_t tokens = 8192;

  Status prepare(LinkEnds& ends) {
    ends_ = &ends;
    const std::vector<float> query(shape.query_heads * shape.head_dim, 0.01F);
    const std::vector<std::byte> cache(tokens * shape.token_bytes(), std::byte{0x11});
    TERRACE_ASSIGN(query_, ends.upload<float>(query));
    TERRACE_ASSIGN(output_, ends.upload<float>(query));
    TERRACE_ASSIGN(cache_, ends.upload<std::byte>(cache));
    std::byte* const block = cache_.data();
    TERRACE_ASSIGN(table_, ends.upload<std::byte*>({&block, 1}));
    const std::size_t floats = attention_scratch_floats(shape, tokens);
    TERRACE_ASSIGN(scratch_, ends.backend_->allocate({.bytes = floats * sizeof(float)}));
    return {};
  }

  void start() {
    const auto ticket =
        ends_->backend_->ops().decode_attention(*ends_->compute_, Phase::attend,
                                                {.shape = shape,
                                                 .query = query_.as<float>(),
                                                 .output = output_.as<float>(),
                                                 .resident = {table_.as<std::byte*>(), tokens},
                                                 .sinks = {},
                                                 .window = {0, tokens},
                                                 .scale = 0.1F,
                                                 .scratch = scratch_.as<float>()});
    outcome_ = ticket ? Status{} : tl::unexpected(ticket.error());
  }
  void finish() {
    const Status done = ends_->compute_->drain(patience);
    if (outcome_) outcome_ = done;
  }

  /// All values are equal, and so is their mean.
  Status verify() {
    TERRACE_TRY(outcome_);
    std::vector<float> output(shape.query_heads * shape.head_dim);
    TERRACE_ASSIGN(const Buffer seen,
                   ends_->backend_->allocate({.bytes = output_.bytes(), .tier = Tier::host}));
    TERRACE_TRY(ends_->copy(seen.data(), output_.data(), output_.bytes()));
    const std::byte value[] = {std::byte{0x11}, std::byte{0x11}};
    const float expected = load_f32(value, shape.dtype, 0);
    for (std::size_t i = 0; i < output.size(); ++i) {
      if (std::abs(seen.as<float>()[i] - expected) > 1e-3F * expected) {
        return fail(Errc::corrupt, "attention over equal values gave another one");
      }
    }
    return {};
  }

 private:
  LinkEnds* ends_ = nullptr;
  Buffer query_;
  Buffer output_;
  Buffer cache_;
  Buffer table_;
  Buffer scratch_;
  Status outcome_;
};

LinkEnds::LinkEnds(std::unique_ptr<Backend> backend, std::size_t bytes)
    : backend_(std::move(backend)), bytes_(bytes) {}

Result<std::shared_ptr<LinkEnds>> LinkEnds::create(std::unique_ptr<Backend> backend,
                                                   std::size_t bytes) {
  std::shared_ptr<LinkEnds> ends(new LinkEnds(std::move(backend), bytes));
  TERRACE_TRY(ends->allocate());
  return ends;
}

Status LinkEnds::allocate() {
  TERRACE_ASSIGN(host_source_, backend_->allocate({.bytes = bytes_, .tier = Tier::host}));
  TERRACE_ASSIGN(host_target_, backend_->allocate({.bytes = bytes_, .tier = Tier::host}));
  TERRACE_ASSIGN(check_, backend_->allocate({.bytes = bytes_, .tier = Tier::host}));
  TERRACE_ASSIGN(device_source_, backend_->allocate({.bytes = bytes_}));
  TERRACE_ASSIGN(device_target_, backend_->allocate({.bytes = bytes_}));
  TERRACE_ASSIGN(towards_device_, backend_->make_queue({.name = "host_to_device"}));
  TERRACE_ASSIGN(towards_host_, backend_->make_queue({.name = "device_to_host"}));
  TERRACE_ASSIGN(compute_, backend_->make_queue({.name = "compute", .high_priority = true}));
  Rng rng(11);
  for (std::size_t at = 0; at + 8 <= bytes_; at += 8) {
    const std::uint64_t word = rng();
    std::memcpy(host_source_.data() + at, &word, sizeof word);
  }
  std::memset(host_target_.data(), static_cast<int>(spoilt), bytes_);
  TERRACE_TRY(copy(device_source_.data(), host_source_.data(), bytes_));
  return copy(device_target_.data(), host_target_.data(), bytes_);
}

Status LinkEnds::copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  const CopyExtent extent{target, source, bytes};
  TERRACE_TRY(towards_device_->copy(Phase::update, {&extent, 1}));
  return towards_device_->drain(patience);
}

template <typename T>
Result<Buffer> LinkEnds::upload(std::span<const T> values) {
  TERRACE_ASSIGN(const Buffer staging,
                 backend_->allocate({.bytes = values.size_bytes(), .tier = Tier::host}));
  std::ranges::copy(std::as_bytes(values), staging.data());
  TERRACE_ASSIGN(Buffer on_device, backend_->allocate({.bytes = values.size_bytes()}));
  TERRACE_TRY(copy(on_device.data(), staging.data(), values.size_bytes()));
  return on_device;
}

namespace {

template <typename Doing>
Work work_of(const std::shared_ptr<LinkEnds>& ends, const std::shared_ptr<Doing>& doing,
             double bytes) {
  return {.bytes = bytes,
          .start = [ends, doing] { doing->start(); },
          .finish = [doing] { doing->finish(); },
          .verify = [doing] { return doing->verify(); }};
}

}  // namespace

Result<std::byte*> LinkEnds::host_end(HostEnd host) {
  const std::span<const std::byte> content(host_source_.data(), bytes_);
  if (host == HostEnd::pageable) {
    if (pageable_.empty()) pageable_.assign(content.begin(), content.end());
    return pageable_.data();
  }
  if (!from_driver_) {
    TERRACE_ASSIGN(from_driver_, allocate_by_driver(bytes_));
    std::ranges::copy(content, from_driver_.get());
  }
  return from_driver_.get();
}

Result<Work> LinkEnds::piece(Direction direction, std::size_t bytes, HostEnd host) {
  const bool down = direction == Direction::host_to_device;
  std::byte* at_host = (down ? host_source_ : host_target_).data();
  if (host != HostEnd::locked) {
    TERRACE_ASSIGN(at_host, host_end(host));
  }
  const CopyExtent extent = down ? CopyExtent{device_target_.data(), at_host, bytes}
                                 : CopyExtent{at_host, device_source_.data(), bytes};
  auto transfer = std::make_shared<Transfer>(*this, direction, std::vector<CopyExtent>{extent});
  return work_of(shared_from_this(), transfer, transfer->bytes());
}

Result<Work> LinkEnds::rows(Direction direction, Method method, std::size_t row_bytes,
                            bool scattered) {
  const std::size_t there = bytes_ / row_bytes;
  const std::size_t count = moved_bytes(bytes_, row_bytes) / row_bytes;
  if (there == 0) return fail(Errc::invalid_argument, "rows larger than what there is");
  const std::vector<std::uint32_t> order = row_places(there, count, scattered);
  std::vector<CopyExtent> extents;
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const near = device_target_.data() + i * row_bytes;
    const std::byte* const far = host_source_.data() + order[i] * row_bytes;
    if (direction == Direction::host_to_device) {
      extents.push_back({near, far, row_bytes});
    } else {
      extents.push_back({host_target_.data() + order[i] * row_bytes,
                         device_source_.data() + i * row_bytes, row_bytes});
    }
  }
  auto transfer = std::make_shared<Transfer>(*this, direction, std::move(extents));
  if (method == Method::kernel) TERRACE_TRY(transfer->use_kernel(row_bytes));
  return work_of(shared_from_this(), transfer, transfer->bytes());
}

Result<Work> LinkEnds::attention() {
  const auto attention = std::make_shared<Attention>();
  TERRACE_TRY(attention->prepare(*this));
  return work_of(shared_from_this(), attention, 0);
}

Contender contender(const Work& work) {
  return {.name = "alone",
          .version = std::string(version()),
          .bytes = work.bytes,
          .run =
              [work] {
                work.start();
                work.finish();
              },
          .verify = work.verify};
}

Result<Contender> contender_beside(const Work& work, const Work& other) {
  Contender beside = contender(work);
  const double own = seconds_of(beside.run);
  const double others = seconds_of(contender(other).run);
  TERRACE_TRY(work.verify());
  TERRACE_TRY(other.verify());
  // Often enough to go on until the work has ended.
  const auto times = static_cast<std::size_t>(std::clamp(std::ceil(2 * own / others), 1.0, 500.0));
  beside.before = [other, times] {
    for (std::size_t i = 0; i < times; ++i) other.start();
  };
  beside.verify = [work, other]() -> Status {
    other.finish();
    TERRACE_TRY(other.verify());
    return work.verify();
  };
  return beside;
}

}  // namespace terrace::bench
