// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A C interface over libsycl, for ctypes: kernels that come as SPIR-V, started on a queue that somebody else owns.
// Plain g++ builds it, once for each major version of libsycl, whose C++ interface differs. It has no path to libsycl:
// the loader finds the one that the process has. What it makes is never released: kernels live as long as the process.
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include <sycl/sycl.hpp>

namespace extension = sycl::ext::oneapi::experimental;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

// What g++'s headers ask of newer C and C++ libraries than torch's wheels need: here are its own definitions.
// shim.map hides both.
extern "C" {
char __libc_single_threaded = 0; // glibc 2.32; 0: counts of references are atomic
}
namespace std {
[[noreturn]] void __throw_bad_array_new_length() { throw std::bad_alloc(); } // GLIBCXX_3.4.29
} // namespace std

namespace {

thread_local std::string problem;

// Returns what a call makes, `failed` for an exception, whose text is kept: none leaves through the C interface.
template <class Call, class Result>
Result guarded(Call&& call, Result failed) noexcept {
  try {
    try {
      return call();
    } catch (const std::exception& error) {
      problem = error.what();
    } catch (...) {
      problem = "an exception that is not the standard library's";
    }
  } catch (...) { // no memory for the text
    problem.clear();
  }
  return failed;
}

// A value that is not a pointer is handed over as its bytes: a number, or a struct without pointers.
void set_argument(sycl::handler& handler, int place, const void* value, uint32_t size) {
  if (size) {
    handler.set_arg(place, extension::raw_kernel_arg(value, size));
  } else {
    void* pointer;
    std::memcpy(&pointer, value, sizeof pointer);
    handler.set_arg(place, pointer);
  }
}

} // namespace

extern "C" {

// What went wrong in this thread's last call that failed.
const char* accel_sycl_problem() { return problem.c_str(); }

// The kernels of a SPIR-V module, for the device of a queue; null: a problem.
void* accel_sycl_load(sycl::queue* queue, const void* spirv, size_t size) {
  return guarded(
      [&]() -> void* {
        std::vector<std::byte> bytes(size);
        std::memcpy(bytes.data(), spirv, size);
        auto source =
            extension::create_kernel_bundle_from_source(queue->get_context(), extension::source_language::spirv, bytes);
        return new Bundle(extension::build(source, std::vector<sycl::device>{queue->get_device()}, extension::properties{}));
      },
      static_cast<void*>(nullptr));
}

// A kernel by its name in the module; null: a problem, also that there is none.
void* accel_sycl_kernel(void* bundle, const char* name) {
  return guarded(
      [&]() -> void* { return new sycl::kernel(static_cast<Bundle*>(bundle)->ext_oneapi_get_kernel(name)); },
      static_cast<void*>(nullptr));
}

// Starts a kernel; `arguments` point to the values, `sizes` has the bytes of each, 0 for a pointer. Returns 0, 1 for a problem.
int accel_sycl_launch(
    sycl::queue* queue, void* kernel, uint32_t groups, uint32_t items, const void* const* arguments, const uint32_t* sizes,
    uint32_t count) {
  return guarded(
      [&] {
        queue->submit([&](sycl::handler& handler) {
          for (uint32_t i = 0; i < count; ++i) set_argument(handler, static_cast<int>(i), arguments[i], sizes[i]);
          const size_t all = static_cast<size_t>(groups) * items;
          handler.parallel_for(sycl::nd_range<1>(all, items), *static_cast<sycl::kernel*>(kernel));
        });
        return 0;
      },
      1);
}

} // extern "C"
