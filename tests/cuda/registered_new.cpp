// `new` gives memory that host and device both reach, so that tests may hand their arrays to
// kernels as they are. The memory is the host's own, registered with the device: threads also wait
// on objects that lie in it, which the system does not allow in the device's managed memory.
//
// Pieces are powers of two, cut from large regions and kept in lists by size: memory is slow to
// register, and tests ask often. On a machine without a device it is ordinary memory.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>

namespace {

constexpr std::size_t region_bytes = std::size_t{64} << 20;
constexpr std::size_t page_bytes = 4096;
constexpr std::size_t piece_bytes_min = 128;  // also how pieces are aligned

/// The header in front of every piece.
struct Piece {
  std::size_t size;  ///< with this, a power of two
  bool ordinary;     ///< asked for by the runtime itself
  Piece* next;
};

/// Set while the runtime is asked: what it asks for in turn is ordinary memory.
thread_local bool asking = false;

class RegisteredMemory {
 public:
  void* allocate(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(bytes + piece_bytes_min);
    if (asking) return start(static_cast<Piece*>(std::aligned_alloc(piece_bytes_min, size)), size);
    const std::scoped_lock lock(mutex_);
    Piece*& free = free_[static_cast<std::size_t>(std::countr_zero(size))];
    Piece* piece = free;
    if (piece != nullptr) {
      free = piece->next;
    } else {
      piece = static_cast<Piece*>(cut(size));
    }
    return start(piece, size);
  }

  void release(void* data) {
    auto* const piece = reinterpret_cast<Piece*>(static_cast<std::byte*>(data) - piece_bytes_min);
    if (piece->ordinary) return std::free(piece);
    const std::scoped_lock lock(mutex_);
    Piece*& free = free_[static_cast<std::size_t>(std::countr_zero(piece->size))];
    piece->next = free;
    free = piece;
  }

 private:
  static void* start(Piece* piece, std::size_t size) {
    if (piece == nullptr) return nullptr;
    *piece = {size, asking, nullptr};
    return reinterpret_cast<std::byte*>(piece) + piece_bytes_min;
  }

  void* cut(std::size_t size) {
    if (size > region_bytes / 4) return more(size);
    if (left_ < size) {
      region_ = static_cast<std::byte*>(more(region_bytes));
      left_ = region_ == nullptr ? 0 : region_bytes;
      if (region_ == nullptr) return nullptr;
    }
    std::byte* const data = region_;
    region_ += size;
    left_ -= size;
    return data;
  }

  static void* more(std::size_t bytes) {
    void* const data = std::aligned_alloc(page_bytes, std::max(bytes, page_bytes));
    if (data == nullptr) return nullptr;
    asking = true;
    const bool registered = cudaHostRegister(data, bytes, cudaHostRegisterPortable) == cudaSuccess;
    if (!registered) static_cast<void>(cudaGetLastError());
    asking = false;
    return data;
  }

  std::mutex mutex_;
  std::array<Piece*, 64> free_{};
  std::byte* region_ = nullptr;
  std::size_t left_ = 0;
};

RegisteredMemory& memory() {
  // Never destroyed, because memory that is released after main() needs it. It lies in static
  // memory, because `new` would call itself.
  alignas(RegisteredMemory) static std::array<std::byte, sizeof(RegisteredMemory)> place;
  static auto* const made = ::new (place.data()) RegisteredMemory;
  return *made;
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* const data = memory().allocate(bytes)) return data;
  throw std::bad_alloc();
}
void operator delete(void* data) noexcept {
  if (data != nullptr) memory().release(data);
}
void operator delete(void* data, std::size_t) noexcept { operator delete(data); }
