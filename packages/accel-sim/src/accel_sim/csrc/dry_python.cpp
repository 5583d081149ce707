// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Dry mode: the places of the program that allocate, and the Python side.
#include "aten.h"
#include "dry.h"
#include "dry_collectives.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/utils/pybind.h>

namespace accel_sim {

namespace {

enum class File { Internal, Library, Program };

// Module paths are numbers that Python gives; `alike` is the number of the path without the layers' numbers.
struct Module {
  int path = 0, alike = 0;
};

// Guarded by the GIL.
struct ProgramLines {
  std::vector<std::string> internal, library;
  std::unordered_map<PyCodeObject*, File> files;  // each is kept: its address means nothing else
  std::map<std::pair<PyCodeObject*, int>, int> numbers;
  std::vector<std::string> texts{""};
};
ProgramLines& program_lines() {
  static auto* instance = new ProgramLines();
  return *instance;
}

// Where something is allocated. library: the innermost line outside of torch; program: that of the program.
struct Place {
  int phase, module, library, program;
  std::string node;  // of autograd, in a backward pass
  auto key() const { return std::tie(phase, module, library, program, node); }
  bool operator<(const Place& other) const { return key() < other.key(); }
};
struct Places {
  std::mutex mutex;
  std::map<Place, int> numbers;
  std::vector<Place> all;
  std::unordered_map<uint64_t, Module> origins;  // of nodes of autograd, by their sequence numbers
  Module module;
  int program = 0;  // where the program entered the current phase
  int number_of(Place place) {
    const auto [known, is_new] = numbers.try_emplace(place, static_cast<int>(all.size()));
    if (is_new) all.push_back(std::move(place));
    return known->second;
  }
};
Places& places() {
  static auto* instance = new Places();
  return *instance;
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  for (const auto& prefix : prefixes) {
    if (text.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

bool is_installed(const std::string& file) {
  return file.find("/site-packages/") != std::string::npos || file.find("/dist-packages/") != std::string::npos;
}

std::string path_of(PyCodeObject* code) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code)).attr("co_filename").cast<std::string>();
}

File kind_of(PyCodeObject* code) {
  const auto [known, is_new] = program_lines().files.try_emplace(code, File::Program);
  if (!is_new) return known->second;
  Py_INCREF(code);
  const auto file = path_of(code);
  if (file.rfind("<", 0) == 0 || begins_with_any(file, program_lines().internal)) {
    known->second = File::Internal;
  } else if (is_installed(file) || begins_with_any(file, program_lines().library)) {
    known->second = File::Library;
  }
  return known->second;
}

int line_number(PyCodeObject* code, int line) {
  const auto [known, is_new] = program_lines().numbers.try_emplace({code, line}, static_cast<int>(program_lines().texts.size()));
  if (is_new) program_lines().texts.push_back(path_of(code) + ":" + std::to_string(line));
  return known->second;
}

// The innermost line of a library and of the program on this thread's stack; 0: none.
std::pair<int, int> current_lines() {
  int library = 0, program = 0;
  if (!PyGILState_GetThisThreadState()) return {0, 0};
  py::gil_scoped_acquire gil;
  auto* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame && !program) {
    auto* code = PyFrame_GetCode(frame);
    const auto kind = kind_of(code);
    auto& line = kind == File::Program ? program : library;
    if (kind != File::Internal && !line) line = line_number(code, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    auto* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
  return {library, program};
}

py::tuple row_of(const Place& place) {
  return py::make_tuple(
      place.phase, place.module, program_lines().texts[static_cast<size_t>(place.library)],
      program_lines().texts[static_cast<size_t>(place.program)], place.node);
}

py::dict peak_of(const Ledger::Snapshot& peak) {
  py::list held;
  for (const auto& [key, each] : peak.by_key) {
    if (each.bytes > 0) held.append(py::make_tuple(row_of(places().all[key >> 8]), key & 255, each.bytes, each.count));
  }
  py::dict result;
  result["requested"] = peak.total;
  result["allocated"] = peak.allocated;
  result["reserved"] = peak.reserved;
  result["held"] = held;
  result["place"] = peak.total ? py::object(row_of(places().all[static_cast<size_t>(peak.place)])) : py::none();
  return result;
}

py::dict peaks() {
  std::array<Ledger::Snapshot, Ledger::kPhases> copy;
  {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    ledger().settle();
    copy = ledger().peaks;
  }
  py::dict result;
  for (size_t phase = 0; phase < copy.size(); phase++) {
    if (copy[phase].total) result[py::int_(phase)] = peak_of(copy[phase]);
  }
  return result;
}

} // namespace

Allocating allocating() {
  const auto [library, program] = current_lines();
  auto& all = places();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto module = all.module;
  std::string node;
  if (const auto current = torch::autograd::get_current_node()) {
    node = current->name();
    const auto origin = all.origins.find(current->sequence_nr());
    if (!module.path && origin != all.origins.end()) module = origin->second;
  } else if (at::GradMode::is_enabled() && module.path && at::sequence_number::peek()) {
    // A node of autograd is made just before the kernel of its operator runs.
    all.origins.emplace(at::sequence_number::peek() - 1, module);
  }
  const int phase = ledger().phase, line = program ? program : all.program;
  return {all.number_of({phase, module.path, library, line, node}), all.number_of({phase, module.alike, library, line, node})};
}

void bind_dry(py::module_& m) {
  m.def("dry_enable", [](size_t device_limit, size_t host_limit, size_t reserve, size_t pad, bool arena,
                         std::vector<std::string> internal, std::vector<std::string> library) {
    dry() = {true, true, device_limit, host_limit, reserve, pad, arena};
    program_lines().internal = std::move(internal);
    program_lines().library = std::move(library);
    places().number_of({0, 0, 0, 0, ""});  // what was there before the first allocation
    enable_host_count();
    enable_dry_kernels();
  });
  // The memory of a device that computes is counted as in a rehearsal.
  m.def("count_memory", [](size_t pad, bool arena) {
    if (dry().on) return;
    dry().modelled = true;
    dry().pad = pad;
    dry().arena = arena;
    enable_host_count();
  });
  m.def("dry_phase", [](int phase) {
    const auto line = current_lines().second;
    int place = 0;
    {
      std::lock_guard<std::mutex> lock(places().mutex);
      places().program = line;
      place = places().number_of({phase, places().module.path, 0, line, ""});
    }
    ledger().enter(phase, place);
  });
  m.def("dry_module", [](int path, int alike) {
    std::lock_guard<std::mutex> lock(places().mutex);
    places().module = {path, alike};
  });
  m.def("dry_label", [](const at::Tensor& tensor, int kind) {
    return tensor.has_storage() && label(*tensor.storage().unsafeGetStorageImpl(), kind);
  });
  m.def("dry_peaks", &peaks);
  m.def("dry_begin_step", [] {
    ledger().reset_timeline();
    std::lock_guard<std::mutex> lock(places().mutex);
    places().origins.clear();
  });
  m.def("dry_timeline", [] {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    std::vector<std::pair<int64_t, int>> result;
    for (const auto& event : ledger().timeline) result.emplace_back(event.total, event.phase);
    return result;
  });
  m.def("dry_host", [] {
    std::lock_guard<std::mutex> lock(host_count().mutex);
    return std::make_pair(host_count().peak, host_count().pinned_peak);
  });
  m.def("dry_computed", [] {
    std::lock_guard<std::mutex> lock(computed().mutex);
    return computed().by_name;
  });
  m.def("dry_collectives", [] {
    std::lock_guard<std::mutex> lock(collective_counts().mutex);
    std::vector<std::pair<CollectiveCounts::Call, std::pair<int64_t, int64_t>>> result;
    for (const auto& [call, count] : collective_counts().by_call) result.push_back({call, {count.calls, count.bytes}});
    return result;
  });
  m.def("dry_reset_collectives", [] {
    std::lock_guard<std::mutex> lock(collective_counts().mutex);
    collective_counts().by_call.clear();
  });
  m.def("dry_recorded", [] {
    std::lock_guard<std::mutex> lock(tape().mutex);
    std::map<std::string, py::bytes> result;
    for (const auto& [key, value] : tape().recorded) result.emplace(key, py::bytes(value));
    return std::make_pair(result, tape().missing.load());
  });
  m.def("dry_replay", [](std::map<std::string, std::string> given) {
    std::lock_guard<std::mutex> lock(tape().mutex);
    tape().replayed.merge(given);
  });
  m.def("dry_backend", &make_dry_backend);
}

} // namespace accel_sim
