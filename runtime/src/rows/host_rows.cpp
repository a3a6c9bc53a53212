#include "host_rows.hpp"

#include <utility>

#include "layer_rows.hpp"
#include "terrace/core/assert.hpp"

namespace terrace {

HostRows::HostRows(LayerRows& rows, std::span<const std::uint32_t> blocks) : rows_(&rows) {
  if (!rows.has_mover()) return;
  kept_.assign(blocks.begin(), blocks.end());
  for (const std::uint32_t block : kept_) ++rows.keepers_[block];
}

HostRows::HostRows(HostRows&& other) noexcept
    : rows_(std::exchange(other.rows_, nullptr)), kept_(std::exchange(other.kept_, {})) {}

HostRows& HostRows::operator=(HostRows&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  rows_ = std::exchange(other.rows_, nullptr);
  kept_ = std::exchange(other.kept_, {});
  return *this;
}

void HostRows::let_go() noexcept {
  for (const std::uint32_t block : kept_) {
    if (block >= rows_->keepers_.size()) continue;  // it has been cut off
    TERRACE_ASSERT(rows_->keepers_[block] > 0);
    --rows_->keepers_[block];
  }
  kept_.clear();
}

std::byte* HostRows::page(std::size_t block) const noexcept { return rows_->on_host(block); }

BlockTable HostRows::table() const noexcept {
  return rows_ == nullptr ? BlockTable{} : rows_->host_table();
}

}  // namespace terrace
