// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Memory by malloc, whose failure is reported: that of the C++ standard library would throw, and need libstdc++.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <type_traits>

namespace accel_ops::io {

// Base of what is made by `new`, which is null where there is no memory.
struct Allocated {
  static void* operator new(std::size_t size) noexcept { return std::malloc(size); }
  static void operator delete(void* memory) { std::free(memory); }
};

// A list with room for a number of elements that is known beforehand.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>, "elements are not destroyed");

 public:
  Array() = default;
  ~Array() { std::free(items_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  // Before the first element. False where there is no memory.
  bool reserve(std::size_t capacity) {
    items_ = static_cast<T*>(std::malloc(capacity * sizeof(T)));
    return items_ != nullptr;
  }
  void push(const T& item) { items_[size_++] = item; }
  T pop() { return items_[--size_]; }
  void clear() { size_ = 0; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return items_; }
  T* end() { return items_ + size_; }

 private:
  T* items_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace accel_ops::io
