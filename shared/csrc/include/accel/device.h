// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// One dialect for kernels, and what it means to each compiler: NVRTC, hipRTC, SYCL, and C++ for the host, where
// accel-sim's driver runs the threads of a block as fibers. A kernel is a free function over pointers and plain scalars;
// a block of threads works on one `group()`. Compile without contraction of a * b + c (--fmad=false,
// -ffp-contract=off): all devices compute the same bits.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#endif

// Before a loop: leave it as it is, where its body is large and its rounds are few.
#if defined(ACCEL_SYCL) || defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define ACCEL_NO_UNROLL _Pragma("unroll 1")
#else
#define ACCEL_NO_UNROLL
#endif

#if defined(ACCEL_SYCL)
#include <sycl/sycl.hpp>
#define ACCEL_DEVICE inline
#define ACCEL_KERNEL extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void
#define ACCEL_EXPORT(name)
namespace accel {
namespace here = sycl::ext::oneapi::this_work_item;
ACCEL_DEVICE uint32_t group() { return here::get_nd_item<1>().get_group(0); }
ACCEL_DEVICE uint32_t groups() { return here::get_nd_item<1>().get_group_range(0); }
ACCEL_DEVICE uint32_t item() { return here::get_nd_item<1>().get_local_id(0); }
ACCEL_DEVICE uint32_t items() { return here::get_nd_item<1>().get_local_range(0); }
ACCEL_DEVICE uint32_t group_max(uint32_t value) {
  return sycl::reduce_over_group(here::get_work_group<1>(), value, sycl::maximum<uint32_t>());
}
ACCEL_DEVICE float from_f16(uint16_t bits) { return static_cast<float>(sycl::bit_cast<sycl::half>(bits)); }
ACCEL_DEVICE uint16_t to_f16(float value) { return sycl::bit_cast<uint16_t>(static_cast<sycl::half>(value)); }
ACCEL_DEVICE float float_of(uint32_t bits) { return sycl::bit_cast<float>(bits); }
ACCEL_DEVICE uint32_t bits_of(float value) { return sycl::bit_cast<uint32_t>(value); }
ACCEL_DEVICE float round_even(float value) { return sycl::rint(value); }
} // namespace accel
#include "accel/reciprocal.h"
namespace accel {
ACCEL_DEVICE float power_over(int32_t exponent, float value) {
  const uint32_t bits = bits_of(value);
  if (bits >= 0x7f800000u) return bits == 0x7f800000u ? 0.0f : value; // infinity, NaN
  if (bits == 0) return float_of(0x7f800000u);
  const Parts parts = parts_of(bits);
  return float_of(power_over_bits(exponent, parts, 0x1p47f / static_cast<float>(parts.significand)));
}
} // namespace accel

#elif defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__)
#define ACCEL_DEVICE __device__ __forceinline__
#define ACCEL_KERNEL extern "C" __global__ void
#define ACCEL_EXPORT(name)
#define ACCEL_SHARED(type, name, count) __shared__ type name[count]
namespace accel {
ACCEL_DEVICE uint32_t group() { return blockIdx.x; }
ACCEL_DEVICE uint32_t groups() { return gridDim.x; }
ACCEL_DEVICE uint32_t item() { return threadIdx.x; }
ACCEL_DEVICE uint32_t items() { return blockDim.x; }
ACCEL_DEVICE void barrier() { __syncthreads(); }
ACCEL_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }
ACCEL_DEVICE uint32_t bits_of(float value) { return __float_as_uint(value); }
ACCEL_DEVICE float round_even(float value) { return rintf(value); }
#if defined(__HIPCC_RTC__)
ACCEL_DEVICE uint32_t warp_width() { return warpSize; }
ACCEL_DEVICE uint32_t shuffle_xor(uint32_t value, uint32_t mask) { return __shfl_xor(value, mask); }
ACCEL_DEVICE float from_f16(uint16_t bits) {
  _Float16 half;
  __builtin_memcpy(&half, &bits, 2);
  return half;
}
ACCEL_DEVICE uint16_t to_f16(float value) {
  const _Float16 half = value;
  uint16_t bits;
  __builtin_memcpy(&bits, &half, 2);
  return bits;
}
#else
ACCEL_DEVICE uint32_t warp_width() { return 32; }
ACCEL_DEVICE uint32_t shuffle_xor(uint32_t value, uint32_t mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
ACCEL_DEVICE float from_f16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
ACCEL_DEVICE uint16_t to_f16(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif
} // namespace accel

#else
#include <cmath>
#include <utility>
#define ACCEL_DEVICE inline
#define ACCEL_KERNEL extern "C" void
// A kernel that the driver can be asked for by name.
#define ACCEL_EXPORT(name) static const accel::Exported exported_##name(#name, name)
#define ACCEL_SHARED(type, name, count)                                      \
  static const size_t name##_offset = accel::reserve_shared(sizeof(type[count])); \
  type* const name = static_cast<type*>(accel::shared_at(name##_offset))
namespace accel {
struct Place {
  uint32_t group, groups, item, items;
};
Place place();
void barrier();
uint32_t shuffle_xor(uint32_t value, uint32_t mask);
size_t reserve_shared(size_t bytes);
void* shared_at(size_t offset);
void add_kernel(const char* name, const uint32_t* sizes, uint32_t count, void (*call)(const void* kernel, void** arguments), const void* kernel);

// Calls a kernel with an array of pointers to its arguments, as drivers get them.
template <class... A>
struct Caller {
  template <size_t... I>
  static void spread(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<A*>(arguments[I])...);
  }
  static void call(const void* kernel, void** arguments) {
    spread(reinterpret_cast<void (*)(A...)>(const_cast<void*>(kernel)), arguments, std::index_sequence_for<A...>{});
  }
};
struct Exported {
  template <class... A>
  Exported(const char* name, void (*kernel)(A...)) {
    static const uint32_t sizes[] = {sizeof(A)...};
    add_kernel(name, sizes, sizeof...(A), &Caller<A...>::call, reinterpret_cast<const void*>(kernel));
  }
};

ACCEL_DEVICE uint32_t group() { return place().group; }
ACCEL_DEVICE uint32_t groups() { return place().groups; }
ACCEL_DEVICE uint32_t item() { return place().item; }
ACCEL_DEVICE uint32_t items() { return place().items; }
ACCEL_DEVICE uint32_t warp_width() { return 32; }
ACCEL_DEVICE float round_even(float value) { return nearbyintf(value); }
} // namespace accel
#endif
#include "accel/half.h"

namespace accel {

// An address in an argument that is a struct. SYCL would copy a struct with pointers to change their type, into a module
// that is not valid; the address of an integer is that of device memory.
#if defined(ACCEL_SYCL)
using Address = uint64_t;
template <class T>
ACCEL_DEVICE T* pointer(Address address) {
#if defined(__SYCL_DEVICE_ONLY__)
  return (T*)reinterpret_cast<__attribute__((opencl_global)) T*>(address);
#else
  return reinterpret_cast<T*>(address);
#endif
}
#else
using Address = void*;
template <class T>
ACCEL_DEVICE T* pointer(Address address) {
  return static_cast<T*>(address);
}

// 2^exponent / value, rounded to nearest even; the value is not negative, the exponent less than 31.
ACCEL_DEVICE float power_over(int32_t exponent, float value) { return static_cast<float>(1 << exponent) / value; }

// The largest value of the block, in every thread. The number of threads is a multiple of the warp's width.
ACCEL_DEVICE uint32_t group_max(uint32_t value) {
  const uint32_t width = warp_width();
  for (uint32_t mask = width / 2; mask; mask /= 2) {
    const uint32_t other = shuffle_xor(value, mask);
    value = other > value ? other : value;
  }
  ACCEL_SHARED(uint32_t, warps, 32);
  barrier(); // a call before this one may still read
  if (item() % width == 0) warps[item() / width] = value;
  barrier();
  value = 0;
  for (uint32_t warp = 0; warp < items() / width; ++warp) value = warps[warp] > value ? warps[warp] : value;
  return value;
}
#endif

// Elements that are loaded and stored at once; 16 bytes are the widest access of a thread.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

} // namespace accel
