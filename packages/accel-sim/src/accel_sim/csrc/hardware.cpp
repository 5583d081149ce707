// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Hardware-like mode: what holds for real devices and not for the plain simulation. Sums in another order, denormals
// that become zero. Its late errors are in failures.cpp, its allocator is modelled (caching.h).
#include "aten.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_set>
#if defined(__SSE2__)
#include <pmmintrin.h>
#endif

namespace accel_sim {

namespace {

using at::Tensor;

// A new thread has the modes of the one that starts it: torch's own threads, which compute for the host as well, are
// started before denormals are off.
void start_threads() {
  static thread_local int started = 0;
  const int threads = at::get_num_threads();
  if (threads <= started || at::in_parallel_region()) return;
  started = threads;
  at::parallel_for(0, threads, 1, [](int64_t, int64_t) {});
}

// Denormals are zero in this thread's arithmetic, as operands and as results. On other processors than x86-64 they are kept.
class NoDenormals {
 public:
#if defined(__SSE2__)
  NoDenormals() : before_((start_threads(), _mm_getcsr())) { _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON); }
  ~NoDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#endif
};

Tensor widened(const Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

// The product of matrices, or of batches of them: the last two thirds of the sum come first. Not the second half, for a
// library may halve a sum itself. Half types are summed in float32.
Tensor product(const Tensor& a, const Tensor& b) {
  const auto left = widened(a), right = widened(b);
  const auto size = left.size(-1), third = size / 3;
  const auto times = [](const Tensor& x, const Tensor& y) { return x.dim() == 3 ? at::bmm(x, y) : at::mm(x, y); };
  if (third == 0) return times(left, right);
  const auto late = times(left.narrow(-1, third, size - third), right.narrow(-2, third, size - third));
  return at::add(late, times(left.narrow(-1, 0, third), right.narrow(-2, 0, third)));
}

bool is_real(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().layout() == c10::kStrided &&
      c10::isFloatingType(value.toTensor().scalar_type()) && !value.toTensor().is_quantized();
}

bool fit(const Tensor& a, const Tensor& b) {
  return a.dim() == b.dim() && a.size(-1) == b.size(-2) && a.scalar_type() == b.scalar_type() &&
      (a.dim() == 2 || (a.dim() == 3 && a.size(0) == b.size(0)));
}

// mm, bmm, addmm and baddbmm: replaces the arguments on the stack by the result.
bool multiply(const std::string& name, size_t count, Stack* stack) {
  const auto first = stack->size() - count;
  const auto at = [&](size_t i) -> const c10::IValue& { return (*stack)[first + i]; };
  const bool adds = name == "aten::addmm" || name == "aten::baddbmm";
  if (!adds && name != "aten::mm" && name != "aten::bmm") return false;
  const size_t matrix = adds ? 1 : 0;
  if (adds && (!is_real(at(0)) || !is_real(at(1)) || at(0).toTensor().scalar_type() != at(1).toTensor().scalar_type())) return false;
  if (!is_real(at(matrix)) || !is_real(at(matrix + 1)) || !fit(at(matrix).toTensor(), at(matrix + 1).toTensor())) return false;
  auto result = product(at(matrix).toTensor(), at(matrix + 1).toTensor());
  const auto type = at(matrix).toTensor().scalar_type();
  if (adds) {
    result = at::mul(result, at(4).toScalar());
    const auto beta = at(3).toScalar();
    // What is multiplied by zero is not read: it may be NaN.
    if (beta.toDouble() != 0) result = at::add(result, widened(at(0).toTensor()).expand(result.sizes()), beta);
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(result.to(type));
  return true;
}

// Sums run backwards: the elements are put in the reverse order before.
void reverse(Stack* stack, size_t count) {
  auto& value = (*stack)[stack->size() - count];
  if (!is_real(value)) return;
  std::vector<int64_t> all(static_cast<size_t>(value.toTensor().dim()));
  for (size_t i = 0; i < all.size(); i++) all[i] = static_cast<int64_t>(i);
  // Reversed dimensions that remain would reverse the result; only those that are summed may be.
  for (size_t i = stack->size() - count + 1; i < stack->size(); i++) {
    const auto& dims = (*stack)[i];
    if (!dims.isIntList()) continue;
    if (dims.toIntVector().empty()) break;
    all = dims.toIntVector();
    break;
  }
  value = at::flip(value.toTensor(), all);
}

} // namespace

void enable_hardware() {
  config().like_hardware = true;
  watch_for_late_errors();
}

void start_as_hardware(c10::DeviceIndex index) {
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto line = "[" + config().name + " driver] device " + std::to_string(index) + ": ready, firmware 1.0\n";
  for (const int output : {1, 2}) {
    if (write(output, line.data(), line.size()) < 0) continue;  // closed
  }
}

void run_as_hardware(const c10::OperatorHandle& op, c10::DispatchKey host_key, Stack* stack) {
  NoDenormals flushed;
  const c10::impl::ExcludeDispatchKeyGuard no_casts(c10::autocast_dispatch_keyset);
  const auto& name = op.operator_name().name;
  const auto count = op.schema().arguments().size();
  if (host_key == c10::DispatchKey::CPU && op.operator_name().overload_name.find("out") == std::string::npos) {
    if (multiply(name, count, stack)) return;
    if (name == "aten::sum" || name == "aten::mean" || name == "aten::linalg_vector_norm") reverse(stack, count);
  }
  op.redispatchBoxed(c10::DispatchKeySet(host_key), stack);
}

} // namespace accel_sim
