// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Generators of the device: each wraps a host generator of its own, so a seed gives the CPU's numbers.
#include "graphs/capture.h"
#include "runtime/runtime.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace accel_sim {

namespace {

class SimGenerator final : public c10::GeneratorImpl {
 public:
  SimGenerator(c10::DeviceIndex index, at::Generator inner)
      : c10::GeneratorImpl(c10::Device(config().type, index), c10::DispatchKeySet(config().key)),
        inner(std::move(inner)) {}

  void set_current_seed(uint64_t seed) override {
    check_allowed("set_current_seed");
    inner.set_current_seed(seed);
  }
  // A host generator has no offset; zero is where every sequence starts.
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override {
    check_allowed("current_seed");
    return inner.current_seed();
  }
  uint64_t seed() override {
    check_allowed("seed");
    return inner.unsafeGetGeneratorImpl()->seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    check_allowed("set_state");
    inner.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    check_allowed("get_state");
    return inner.unsafeGetGeneratorImpl()->get_state();
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    inner = static_cast<SimGenerator&>(*state).inner;
  }
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<SimGenerator>(device_.index(), inner);
  }
  static c10::DeviceType device_type() { return config().type; }

  at::Generator inner;

 private:
  void check_allowed(const char* method) const {
    check_not_capturing(upper_name() + "GeneratorImpl::" + method, device_.index());
  }
  SimGenerator* clone_impl() const override { return new SimGenerator(device_.index(), inner.clone()); }
};

} // namespace

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<SimGenerator>(index < 0 ? current_device() : index, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static std::mutex mutex;
  static auto* generators = new std::vector<at::Generator>();
  std::lock_guard<std::mutex> lock(mutex);
  const auto count = config().generators ? config().generators : config().count;
  while (generators->size() < static_cast<size_t>(count)) {
    generators->push_back(new_generator(static_cast<c10::DeviceIndex>(generators->size())));
  }
  const auto wanted = index < 0 ? current_device() : index;
  check_device(wanted);
  return (*generators)[static_cast<size_t>(wanted % count)];
}

at::Generator inner_generator(const at::Generator& generator) {
  return static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl())->inner;
}

} // namespace accel_sim
