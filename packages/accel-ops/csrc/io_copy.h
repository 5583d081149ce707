// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Copies between the caller's memory and staging memory.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace accel_ops::io {

// Copies by stores that go past the processor's cache: the lines that they replace are not read first. The device reads
// staging memory, and the caller a large tensor, from memory anyway.
inline void copy_past_cache(char* to, const char* from, int64_t size) {
#if defined(__SSE2__)
  constexpr int64_t kLine = 64, kSmall = 32 << 10, kWord = sizeof(__m128i);
  if (size >= kSmall) {
    const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % kLine);
    std::memcpy(to, from, static_cast<size_t>(head));
    const int64_t end = head + (size - head) / kLine * kLine;
    for (int64_t at = head; at < end; at += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from + at);
      auto* target = reinterpret_cast<__m128i*>(to + at);
      const __m128i line[] = {
          _mm_loadu_si128(source), _mm_loadu_si128(source + 1), _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
      for (int64_t word = 0; word < kLine / kWord; word++) _mm_stream_si128(target + word, line[word]);
    }
    _mm_sfence();  // before another thread is told of the end
    to += end, from += end, size -= end;
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(size));
}

} // namespace accel_ops::io
