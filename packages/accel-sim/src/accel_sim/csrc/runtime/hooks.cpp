// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// torch's accelerator hooks: device count, pinned memory, generators, synchronization.
#include "runtime/runtime.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>

#include <new>

namespace accel_sim {

namespace {

// What every accelerator answers alike.
template <typename Interface>
struct Common : Interface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return config().count > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return was_used(index); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(config().count); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const auto before = current_device();
    set_current_device(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device() : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Device getDeviceFromPtr(void*) const override { return {config().type, current_device()}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }
};

struct PrivateUse1Hooks final : Common<at::PrivateUse1HooksInterface> {
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize(storage, bytes);
  }
};

struct HpuHooks final : Common<at::HPUHooksInterface> {
  bool hasHPU() const override { return true; }
};

struct XpuHooks final : Common<at::XPUHooksInterface> {
  bool hasXPU() const override { return true; }
  int32_t getGlobalIdxFromDevice(const c10::Device& device) const override { return device.index(); }
  c10::DeviceIndex getNumGPUs() const override { return deviceCount(); }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { synchronize_device(index); }
};

struct CudaHooks final : Common<at::CUDAHooksInterface> {
  bool hasCUDA() const override { return true; }
  c10::DeviceIndex current_device() const override { return getCurrentDevice(); }
  int getNumGPUs() const override { return config().count; }
  c10::Allocator* getCUDADeviceAllocator() const override { return allocator(); }
  void deviceSynchronize(c10::DeviceIndex index) const override { synchronize_device(index); }
};

struct MpsHooks final : Common<at::MPSHooksInterface> {
  bool hasMPS() const override { return true; }
  bool isOnMacOSorNewer(unsigned, unsigned) const override { return true; }
  c10::Allocator* getMPSDeviceAllocator() const override { return allocator(); }
  void deviceSynchronize() const override { synchronize_device(accel_sim::current_device()); }
};

// torch makes the hooks of CUDA while it is imported: ours are put in their place. Both are an object
// without members, so only the table of functions changes.
void replace_cuda_hooks() {
  static_assert(sizeof(CudaHooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) CudaHooks();
}

} // namespace

void register_hooks() {
  switch (config().type) {
    case c10::DeviceType::PrivateUse1:
      at::RegisterPrivateUse1HooksInterface(new PrivateUse1Hooks());
      break;
    case c10::DeviceType::HPU:
      at::HPUHooksRegistry()->Register(
          "HPUHooks", [](at::HPUHooksArgs) -> std::unique_ptr<at::HPUHooksInterface> { return std::make_unique<HpuHooks>(); });
      break;
    case c10::DeviceType::XPU:
      at::XPUHooksRegistry()->Register(
          "XPUHooks", []() -> std::unique_ptr<at::XPUHooksInterface> { return std::make_unique<XpuHooks>(); });
      break;
    case c10::DeviceType::MPS:
      at::MPSHooksRegistry()->Register(
          "MPSHooks", []() -> std::unique_ptr<at::MPSHooksInterface> { return std::make_unique<MpsHooks>(); });
      break;
    case c10::DeviceType::CUDA:
      replace_cuda_hooks();
      break;
    default:
      TORCH_CHECK(false, "no simulated device of type ", config().type);
  }
}

} // namespace accel_sim
