// A reference to something callable, for parameters: two words, no allocation, no ownership.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace terrace {

template <typename Signature>
class FunctionRef;

/// Refers to a callable for the duration of a call. The callable must outlive it.
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
             std::is_invocable_r_v<R, Callable&, Args...>)
  FunctionRef(
      Callable&& callable) noexcept  // NOLINT(google-explicit-constructor): like a reference
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace terrace
