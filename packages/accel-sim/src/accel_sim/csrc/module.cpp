// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The Python side of the extension.
#include "aten.h"
#include "collectives.h"
#include "graphs.h"
#include "hooks.h"
#include "order.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

namespace {

using accel_sim::config;

void activate(
    const std::string& name, int count, size_t capacity, int generators, bool strict, bool orders_data,
    size_t state_bytes) {
  auto& c = config();
  TORCH_CHECK(c.key == c10::DispatchKey::Undefined, "this process already simulates ", c.name);
  c.type = c10::Device(name).type();
  const auto backend = c10::toBackendComponent(c10::TensorOptions().device(c.type).computeDispatchKey());
  c.key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Dense, backend);
  c.autograd_key = c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::AutogradFunctionality, backend);
  c.autocast_key = c10::getAutocastRelatedKeySetFromBackend(backend).highestPriorityTypeId();
  c.name = name;
  c.count = count;
  c.capacity = capacity;
  c.generators = generators;
  c.strict = strict;
  c.orders_data = orders_data;
  c.state_bytes = state_bytes;
  accel_sim::register_memory();
  accel_sim::register_device();
  accel_sim::register_kernels();
  accel_sim::register_fallback();
  accel_sim::register_autocast();
  accel_sim::register_collectives();
  accel_sim::register_graphs();
  accel_sim::order();  // an observer, of which it is the first that is not of graphs
}

// race: the order of work is watched without deferred mode, too; what was ordered stays known.
void set_deferred(bool on, bool race) {
  accel_sim::order().watch(on || race);
  on ? accel_sim::enable_deferral() : accel_sim::disable_deferral();
}

void enable_modes(bool race, bool deferred) {
  if (race) accel_sim::enable_race_detection();
  if (race || deferred) set_deferred(deferred, race);
}

void model_memory(size_t reserve, size_t padding, bool arena) {
  config().modelled = true;
  config().reserve = reserve;
  config().padding = padding;
  config().arena = arena;
}

accel_sim::Hooks hooks{
    [](accel_sim::DryRun* run) { accel_sim::dry_run() = run; },
    &accel_sim::run_shapes,
    &accel_sim::wrap_host_kernels,
    &accel_sim::block_of,
    &accel_sim::in_device_work,
    &accel_sim::check_whole};

py::object default_generator(int index) {
  const auto& generator = accel_sim::default_generator(static_cast<c10::DeviceIndex>(index));
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(generator));
}

} // namespace

at::GraphCaptureMode capture_mode(const std::string& name) {
  if (name == "global" || name == "default") return at::GraphCaptureMode::Global;
  if (name == "thread_local") return at::GraphCaptureMode::ThreadLocal;
  TORCH_CHECK(
      name == "relaxed", "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", name);
  return at::GraphCaptureMode::Relaxed;
}

void bind_graphs(py::module_& m) {
  using accel_sim::SimGraph;
  using Pool = std::optional<c10::MempoolId_t>;
  const auto begin = [](SimGraph& graph, Pool pool, const std::string& mode, bool executes) {
    graph.begin(pool.value_or(c10::MempoolId_t{0, 0}), capture_mode(mode), executes);
  };
  // Without the interpreter's lock: the threads of autograd need it while they have that of the capture.
  const py::call_guard<py::gil_scoped_release> free;
  py::class_<SimGraph, std::shared_ptr<SimGraph>>(m, "Graph")
      .def(py::init([](bool) { return std::make_shared<SimGraph>(); }), py::arg("keep_graph") = false)
      .def("capture_begin", begin, free, py::arg("pool") = py::none(), py::arg("capture_error_mode") = "global",
           py::arg("executes") = false)
      .def("capture_end", torch::wrap_pybind_function_no_gil(&SimGraph::capture_end))
      .def("instantiate", &SimGraph::instantiate)
      .def("replay", &SimGraph::replay, free)
      .def("reset", &SimGraph::reset, free)
      .def("pool", &SimGraph::pool)
      .def("register_generator_state", &SimGraph::register_generator_state);
  m.def("graph_pool_handle", &accel_sim::new_graph_pool);
  m.def("is_current_stream_capturing", [] {
    return accel_sim::is_capturing(accel_sim::current_stream(accel_sim::current_device()));
  });
}

PYBIND11_MODULE(accel_sim_native, m) {
  bind_graphs(m);
  m.attr("hooks") = py::capsule(&hooks, accel_sim::kHooks);
  m.def("activate", &activate);
  m.def("enable_modes", &enable_modes);
  m.def("model_memory", &model_memory);
  m.def("enable_hardware", &accel_sim::enable_hardware);
  m.def("enable_failures", &accel_sim::enable_failures);
  m.def("fail", &accel_sim::fail);
  m.def("has_streams", &accel_sim::has_streams);
  m.def("carry_out_at_once", &accel_sim::carry_out_at_once);
  m.def("set_deferred", &set_deferred);
  m.def("hide_frames", &accel_sim::hide_frames);
  m.def("host_reads", [](const std::string& by, const at::Tensor& tensor) {
    accel_sim::host_touches(by, "self", tensor, false);
  });
  m.def("poison_fork", &accel_sim::poison_fork);
  m.def("is_in_bad_fork", &accel_sim::is_in_bad_fork);
  m.def("check_fork", &accel_sim::check_fork);
  m.def("make_backend", &accel_sim::make_backend);
  m.def("default_generator", &default_generator);
  m.def("event_elapsed_ms", &accel_sim::event_elapsed_ms);
  m.def("event_time_us", &accel_sim::event_time_us);
  m.def("resize_storage", [](const at::Tensor& of, size_t bytes) { accel_sim::resize(of.storage(), bytes); });
  m.def("set_memory_fraction", &accel_sim::set_memory_fraction);
  m.def("memory_fraction", &accel_sim::memory_fraction);
  m.def("register_host", [](size_t data, size_t bytes) {
    accel_sim::register_host(reinterpret_cast<void*>(data), bytes);
    return 0;
  });
  m.def("unregister_host", [](size_t data) {
    accel_sim::unregister_host(reinterpret_cast<void*>(data));
    return 0;
  });
  m.def("is_pinned", [](size_t pointer) { return accel_sim::is_pinned(reinterpret_cast<const void*>(pointer)); });
}
