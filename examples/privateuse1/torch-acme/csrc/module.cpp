// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// What torch_acme/device.py calls.
#include "device.h"
#include "driver.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Generator.h>

PYBIND11_MODULE(_C, module) {
  module.def("device_count", &acme_device_count);
  module.def("current_device", [] { return static_cast<int>(acme::current_device()); });
  module.def("set_device", [](int index) { acme::set_current_device(static_cast<c10::DeviceIndex>(index)); });
  module.def("memory", [](int index) {
    const auto memory = acme_memory_of(index);
    return pybind11::make_tuple(memory.used, memory.peak, memory.total);
  });
  module.def("reset_peak", &acme_reset_peak);
  module.def("default_generator", [](int index) {
    auto* object = THPGenerator_initDefaultGenerator(acme::default_generator(static_cast<c10::DeviceIndex>(index)));
    return pybind11::reinterpret_steal<pybind11::object>(object);
  });
}
