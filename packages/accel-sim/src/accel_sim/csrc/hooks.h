// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What another extension may change: accel-rehearse counts memory, and computes small tensors only.
#pragma once

#include "aten.h"
#include "caching.h"

namespace accel_sim {

// What the simulator calls, if there is one.
class DryRun {
 public:
  virtual ~DryRun() = default;
  // True: an operator on the device makes results of its shapes, and computes nothing.
  virtual bool skips(const c10::OperatorHandle&, const Stack&) = 0;
  virtual bool skips_copy(size_t bytes) = 0;
  // An operator is computed nevertheless: it has no meta kernel.
  virtual void computed(const c10::OperatorHandle&) = 0;
  // Device memory is taken, for which it returns a key; and given back.
  virtual uint64_t taken(size_t bytes, const CachingModel&) = 0;
  virtual void given_back(uint64_t key, size_t bytes, const CachingModel&) = 0;
  // Page-locked host memory.
  virtual void* pin(size_t bytes) = 0;
  virtual void unpin(void* data, size_t bytes) = 0;
};
inline DryRun*& dry_run() {
  return singleton<DryRun*>();
}

// What the simulator offers, in a capsule of this name: `hooks` of its Python module.
constexpr auto kHooks = "accel_sim.hooks.1";
struct Hooks {
  void (*set)(DryRun*);
  bool (*run_shapes)(const c10::OperatorHandle&, Stack*, c10::Device);
  void (*wrap_host_kernels)(BeforeKernel*, c10::function_ref<bool(const c10::OperatorHandle&)>);
  Block* (*block_of)(const c10::StorageImpl&);
  bool (*in_device_work)();
  void (*check_whole)(const std::string&, const at::Tensor&, const at::Tensor&, int);
};

} // namespace accel_sim
