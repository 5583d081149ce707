// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// The places of the program that allocate.
#include "dry.h"
#include "lines.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/node.h>

namespace accel_rehearse {

namespace {

// Module paths are numbers that Python gives; `alike` is the number of the path without the layers' numbers.
struct Module {
  int path = 0, alike = 0;
};

// Where something is allocated. library: the innermost line outside of torch; program: that of the program.
struct Place {
  int phase, module, library, program;
  std::string node;  // of autograd, in a backward pass
  auto operator<=>(const Place&) const = default;
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
  return singleton<Places>();
}

// The innermost line of a library and of the program on this thread's stack; 0: none.
std::pair<int, int> current_lines() {
  int library = 0, program = 0;
  if (!PyGILState_GetThisThreadState()) return {0, 0};
  py::gil_scoped_acquire gil;
  each_frame([&](PyFrameObject* frame, PyCodeObject* code) {
    const auto kind = kind_of(code);
    auto& line = kind == File::Program ? program : library;
    if (kind != File::Internal && !line) line = number_of(code, PyFrame_GetLineNumber(frame));
    return !program;
  });
  return {library, program};
}

py::tuple row_of(const Place& place) {
  return py::make_tuple(place.phase, place.module, text_of_line(place.library), text_of_line(place.program), place.node);
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
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().settle();
  py::dict result;
  for (size_t phase = 0; phase < Ledger::kPhases; phase++) {
    const auto& peak = ledger().peaks[phase];
    if (peak.total) result[py::int_(phase)] = peak_of(peak);
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

void bind_places(py::module_& m) {
  m.def("set_lines", [](std::vector<std::string> internal, std::vector<std::string> library) {
    lines().internal = std::move(internal);
    lines().library = std::move(library);
    places().number_of({0, 0, 0, 0, ""});  // what was there before the first allocation
  });
  m.def("phase", [](int phase) {
    const auto line = current_lines().second;
    int place = 0;
    {
      std::lock_guard<std::mutex> lock(places().mutex);
      places().program = line;
      place = places().number_of({phase, places().module.path, 0, line, ""});
    }
    ledger().enter(phase, place);
  });
  m.def("module", [](int path, int alike) {
    std::lock_guard<std::mutex> lock(places().mutex);
    places().module = {path, alike};
  });
  // Sets the kind of the memory of a tensor.
  m.def("label", [](const at::Tensor& tensor, uint64_t kind) {
    auto* block = tensor.has_storage() ? setup().simulator->block_of(*tensor.storage().unsafeGetStorageImpl()) : nullptr;
    if (!block || !block->piece) return;
    const auto key = block->key >> 8 << 8 | kind;
    if (key != block->key) ledger().relabel(std::exchange(block->key, key), key, static_cast<int64_t>(block->bytes));
  });
  m.def("peaks", &peaks);
  // Forgets events, and before the first step collectives; returns the events.
  m.def("begin_step", [](bool first) {
    std::scoped_lock lock(ledger().mutex, counts().mutex, places().mutex);
    if (first) counts().collectives.clear();
    places().origins.clear();
    return std::exchange(ledger().timeline, {});
  });
}

} // namespace accel_rehearse
