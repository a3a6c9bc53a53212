// A move-only callable with inline storage: what a host queue carries instead of std::function,
// so that enqueuing work in a decode step allocates nothing.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "terrace/core/result.hpp"

namespace terrace {

/// Work for a queue. Returns the bytes it moved across the link (0 for compute), or an error.
class Task {
 public:
  static constexpr std::size_t capacity = 448;

  Task() noexcept = default;

  template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, Task> &&
             std::is_invocable_r_v<Result<std::size_t>, std::remove_cvref_t<Callable>&>)
  Task(Callable&& callable) noexcept {  // NOLINT(google-explicit-constructor): call syntax
    using Stored = std::remove_cvref_t<Callable>;
    static_assert(sizeof(Stored) <= capacity, "capture less, or by pointer");
    static_assert(std::is_nothrow_move_constructible_v<Stored>);
    new (storage_) Stored(std::forward<Callable>(callable));
    verbs_ = &verbs_of<Stored>;
  }

  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { reset(); }

  explicit operator bool() const noexcept { return verbs_ != nullptr; }
  Result<std::size_t> operator()() { return verbs_->call(storage_); }

  /// Destroys the callable and what it captured.
  void reset() noexcept {
    if (verbs_ != nullptr) std::exchange(verbs_, nullptr)->destroy(storage_);
  }

 private:
  struct Verbs {
    Result<std::size_t> (*call)(void*);
    void (*move)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };

  template <typename Stored>
  static constexpr Verbs verbs_of{
      [](void* object) -> Result<std::size_t> { return (*static_cast<Stored*>(object))(); },
      [](void* to, void* from) noexcept {
        new (to) Stored(std::move(*static_cast<Stored*>(from)));
        static_cast<Stored*>(from)->~Stored();
      },
      [](void* object) noexcept { static_cast<Stored*>(object)->~Stored(); }};

  void take(Task& other) noexcept {
    verbs_ = std::exchange(other.verbs_, nullptr);
    if (verbs_ != nullptr) verbs_->move(storage_, other.storage_);
  }

  const Verbs* verbs_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[capacity];
};

}  // namespace terrace
