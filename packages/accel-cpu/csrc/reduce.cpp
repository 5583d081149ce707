// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#include "reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "accel/half.h"
#include "accel_shm.h"

// The level of the machine is chosen when the library is loaded. Only g++ >= 12 knows these names.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define LEVELS __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define LEVELS
#endif
#define INLINE __attribute__((always_inline)) inline

namespace accel_shm {
namespace {

// Elements that are accumulated at a time; they stay in the first-level cache.
constexpr int64_t kBlock = 2048;

template <class T>
struct Plain {
  using Stored = T;
  INLINE static T load(T value) { return value; }
  INLINE static T store(T value) { return value; }
};

struct F16 {
  using Stored = uint16_t;
  INLINE static float load(Stored value) { return accel::from_f16(value); }
  INLINE static Stored store(float value) { return accel::to_f16(value); }
};

// The type of which an element is while it is accumulated.
template <class E>
using Accumulated = decltype(E::load({}));

// The type in which T is added and multiplied. Integers wrap around, as in torch; in C++ that is defined for unsigned
// types only, and smaller ones than int would be promoted to a signed int.
template <class T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using Type = T;
};

template <class T>
struct Arithmetic<T, true> {
  using Type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
};

struct Sum {
  template <class T, class U = typename Arithmetic<T>::Type>
  INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};

struct Product {
  template <class T, class U = typename Arithmetic<T>::Type>
  INLINE static T apply(T a, T b) {
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};

// A NaN wins, as in torch.minimum and torch.maximum.
struct Min {
  template <class T>
  INLINE static T apply(T a, T b) {
    return (a < b || a != a) ? a : b;
  }
};

struct Max {
  template <class T>
  INLINE static T apply(T a, T b) {
    return (a > b || a != a) ? a : b;
  }
};

template <class E, class Op>
INLINE void accumulate(
    const uint8_t* const* sources, int32_t ranks, int64_t begin, int64_t count, Accumulated<E>* __restrict sum) {
  using Stored = typename E::Stored;
  const auto at = [&](int32_t rank) { return reinterpret_cast<const Stored*>(sources[rank]) + begin; };
  const Stored* const first = at(0);
  if (ranks == 1) {
    for (int64_t i = 0; i < count; ++i) sum[i] = E::load(first[i]);
    return;
  }
  const Stored* const second = at(1);
  for (int64_t i = 0; i < count; ++i) sum[i] = Op::apply(E::load(first[i]), E::load(second[i]));
  for (int32_t rank = 2; rank < ranks; ++rank) {
    const Stored* const next = at(rank);
    for (int64_t i = 0; i < count; ++i) sum[i] = Op::apply(sum[i], E::load(next[i]));
  }
}

template <class E, class Op>
INLINE void reduce_as(
    const uint8_t* const* sources, int32_t ranks, void* output, void* also, int64_t begin, int64_t end,
    double factor) {
  using Stored = typename E::Stored;
  Accumulated<E> sum[kBlock];
  for (; begin < end; begin += kBlock) {
    const int64_t count = std::min(kBlock, end - begin);
    accumulate<E, Op>(sources, ranks, begin, count, sum);
    if constexpr (std::is_floating_point_v<Accumulated<E>>) {
      if (factor != 1.0) {
        // A division rounds once; a product with a reciprocal would round twice.
        for (int64_t i = 0; i < count; ++i) sum[i] = sum[i] / static_cast<Accumulated<E>>(factor);
      }
    }
    Stored* const out = static_cast<Stored*>(output) + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = E::store(sum[i]);
    if (also != nullptr) {
      std::memcpy(static_cast<Stored*>(also) + begin, out, static_cast<size_t>(count) * sizeof(Stored));
    }
  }
}

using Function = void (*)(const uint8_t* const*, int32_t, void*, void*, int64_t, int64_t, double);

// target_clones applies to functions, not to templates.
#define REDUCTION(name, element, op)                                                                 \
  LEVELS void name(                                                                                  \
      const uint8_t* const* sources, int32_t ranks, void* output, void* also, int64_t begin, int64_t end, \
      double factor) {                                                                               \
    reduce_as<element, op>(sources, ranks, output, also, begin, end, factor);                        \
  }
#define REDUCTIONS(type, element)      \
  REDUCTION(type##_sum, element, Sum)  \
  REDUCTION(type##_product, element, Product) \
  REDUCTION(type##_min, element, Min)  \
  REDUCTION(type##_max, element, Max)
#define ROW(type) {type##_sum, type##_product, type##_min, type##_max}

REDUCTIONS(f32, Plain<float>)
REDUCTIONS(bf16, accel::Bfloat16)
REDUCTIONS(f16, F16)
REDUCTIONS(f64, Plain<double>)
REDUCTIONS(i32, Plain<int32_t>)
REDUCTIONS(i64, Plain<int64_t>)
REDUCTIONS(i8, Plain<int8_t>)
REDUCTIONS(u8, Plain<uint8_t>)

// In the order of ACCEL_SHM_F32 …, and sum, product, min, max.
const Function kFunctions[][4] = {ROW(f32), ROW(bf16), ROW(f16), ROW(f64), ROW(i32), ROW(i64), ROW(i8), ROW(u8)};
constexpr int64_t kSizes[] = {4, 2, 2, 8, 4, 8, 1, 1};
constexpr int32_t kTypes = sizeof kSizes / sizeof kSizes[0];
static_assert(sizeof kFunctions / sizeof kFunctions[0] == kTypes, "a row for each type");

} // namespace

int64_t element_size(int32_t type) {
  return type >= 0 && type < kTypes ? kSizes[type] : 0;
}

bool reducible(int32_t type, int32_t operation) {
  if (element_size(type) == 0 || operation < ACCEL_SHM_SUM || operation > ACCEL_SHM_MAX) return false;
  return operation != ACCEL_SHM_AVG || type <= ACCEL_SHM_F64;
}

void reduce(
    int32_t type, int32_t operation, const uint8_t* const* sources, int32_t ranks, void* output, void* also,
    int64_t begin, int64_t end) {
  const int column = operation <= ACCEL_SHM_AVG ? 0 : operation - ACCEL_SHM_PRODUCT + 1;
  const double factor = operation == ACCEL_SHM_AVG ? ranks : 1.0;
  kFunctions[type][column](sources, ranks, output, also, begin, end, factor);
}

} // namespace accel_shm
