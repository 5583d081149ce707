// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Where a program calls something: a race as an error that names both sides; and, for dry mode, the places that
// allocate, and its Python side.
#include "aten.h"
#include "collectives.h"
#include "dry.h"
#include "order.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>

namespace accel_sim {

namespace {

// ---------------------------------------------------------------------------------- lines of Python
// Internal: torch's, the simulation's and Python's own, which no text shows.
enum class File { Internal, Library, Program };
using Line = std::pair<PyCodeObject*, int>;

// Guarded by the GIL.
struct Lines {
  std::vector<std::string> internal, library;  // folders and files
  std::unordered_map<PyCodeObject*, File> files;  // each is kept: its address means nothing else
  std::map<Line, int> numbers;
  std::vector<Line> all{{nullptr, 0}};  // 0: no line
};
Lines& lines() {
  return singleton<Lines>();
}

bool begins_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return text.rfind(prefix, 0) == 0; });
}

bool is_installed(const std::string& file) {
  return file.find("/site-packages/") != std::string::npos || file.find("/dist-packages/") != std::string::npos;
}

std::string attribute(PyCodeObject* code, const char* name) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(code)).attr(name).cast<std::string>();
}

File kind_of(PyCodeObject* code) {
  const auto [known, is_new] = lines().files.try_emplace(code, File::Program);
  if (!is_new) return known->second;
  Py_INCREF(code);
  const auto file = attribute(code, "co_filename");
  if (begins_with_any(file, lines().internal)) {
    known->second = File::Internal;
  } else if (is_installed(file) || begins_with_any(file, lines().library)) {
    known->second = File::Library;
  }
  return known->second;
}

int number_of(PyCodeObject* code, int line) {
  const auto [known, is_new] = lines().numbers.try_emplace({code, line}, static_cast<int>(lines().all.size()));
  if (is_new) lines().all.emplace_back(code, line);
  return known->second;
}

// "train.py:12"; empty for no line.
std::string text_of(int number) {
  const auto [code, line] = lines().all[static_cast<size_t>(number)];
  return code ? attribute(code, "co_filename") + ":" + std::to_string(line) : "";
}

// Calls a function with each frame of this thread, the innermost first, until it returns false.
void each_frame(c10::function_ref<bool(PyFrameObject*, PyCodeObject*)> visit) {
  auto* frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (bool more = true; frame && more;) {
    auto* code = PyFrame_GetCode(frame);
    more = visit(frame, code);
    Py_DECREF(code);
    auto* outer = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = outer;
  }
  Py_XDECREF(frame);
}

// ----------------------------------------------------------------------------------- sides of a race
constexpr size_t kFrames = 3;       // of one call site, without torch's
constexpr size_t kNodes = 1 << 18;  // of autograd, whose origins are kept
constexpr const char* kCaller = ", called at ";

std::vector<int> frames() {
  std::vector<int> own;
  int innermost = 0;
  each_frame([&](PyFrameObject* frame, PyCodeObject* code) {
    const bool shown = kind_of(code) != File::Internal;
    if (shown || !innermost) {
      const auto number = number_of(code, PyFrame_GetLineNumber(frame));
      if (!innermost) innermost = number;
      if (shown) own.push_back(number);
    }
    return own.size() < kFrames;
  });
  if (own.empty() && innermost) own.push_back(innermost);
  return own;
}

// The lines at which nodes of autograd were made, by their sequence numbers.
struct Origins {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::vector<int>> lines;
};
Origins& origins() {
  return singleton<Origins>();
}

// The first operator that runs after a node of autograd was made is the one that the node belongs to.
void keep_origin(const std::vector<int>& own) {
  const auto next = at::sequence_number::peek();
  if (!next || !at::GradMode::is_enabled() || own.empty()) return;
  std::lock_guard<std::mutex> lock(origins().mutex);
  if (origins().lines.size() > kNodes) origins().lines.clear();
  origins().lines.emplace(next - 1, own);
}

std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (const auto number : numbers) {
    text += (text.empty() ? "" : kCaller) + text_of(number) + " in " +
        attribute(lines().all[static_cast<size_t>(number)].first, "co_name");
  }
  return text;
}

} // namespace

void hide_frames(std::vector<std::string> prefixes) {
  lines().internal = std::move(prefixes);
}

CallSitePtr call_site(std::string name) {
  auto site = std::make_shared<CallSite>();
  site->name = std::move(name);
  if (PyGILState_GetThisThreadState()) {
    py::gil_scoped_acquire gil;
    site->frames = frames();
  }
  if (const auto node = torch::autograd::get_current_node()) {
    site->node = node->name();
    std::lock_guard<std::mutex> lock(origins().mutex);
    const auto found = origins().lines.find(node->sequence_nr());
    if (found != origins().lines.end()) site->forward = found->second;
  } else {
    keep_origin(site->frames);
  }
  return site;
}

std::string text_of(const CallSite& site) {
  py::gil_scoped_acquire gil;
  auto text = text_of(site.frames);
  if (site.node.empty()) return text.empty() ? "outside of Python" : text;
  text += (text.empty() ? "in the backward pass, " : ", in the backward pass, ") + site.node;
  return site.forward.empty() ? text : text + " of " + text_of(site.forward);
}

namespace {

struct Words {
  const char *what, *expected, *remedy;
};

Words words(RaceKind kind) {
  switch (kind) {
    case RaceKind::WithHost:
      return {
          "the host touches memory that a device may still be using",
          "a host that waits until the device is done",
          "synchronize the stream, or an event recorded after that copy, before the host touches the memory"};
    case RaceKind::WithCollective:
      return {
          "a tensor of a collective that may still be under way is touched",
          "work on a collective's tensors after wait() on what it returned",
          "call wait() on the collective's work, on this stream or one that it waits for, before this"};
    case RaceKind::HandedOut:
      return {
          "memory is handed out again while another stream may still be using it",
          "a freed tensor's memory that only its own stream has used, or streams that it knows of",
          "call tensor.record_stream(stream) for the other stream, or let the tensor's own stream wait for it"
          " before the tensor is freed"};
    default:
      return {
          "two accesses to the same memory are not ordered, and one of them writes",
          "work on the same memory in one stream, or in two of which one waits for the other",
          "let the later stream wait: wait_stream, or an event recorded after the earlier access"};
  }
}

std::string text(const RaceSide& party) {
  return party.action + " on " + party.place + "\nat " + text_of(*party.site);
}

} // namespace

void raise_race(RaceKind kind, const RaceSide& now, const RaceSide& before) {
  const auto [what, expected, remedy] = words(kind);
  py::gil_scoped_acquire gil;
  const auto error_class = py::module_::import("accel_sim.errors").attr("DataRace");
  const auto error = error_class(
      py::arg("what") = what, py::arg("found") = text(now) + "\nunordered with\n" + text(before),
      py::arg("expected") = expected, py::arg("do") = remedy);
  PyErr_SetObject(error_class.ptr(), error.ptr());
  python_error raised;
  raised.persist();
  throw raised;
}

// -------------------------------------------------------------------------------- places of dry mode
namespace {

// Module paths are numbers that Python gives; `alike` is the number of the path without the layers' numbers.
struct Module {
  int path = 0, alike = 0;
};

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
  return py::make_tuple(place.phase, place.module, text_of(place.library), text_of(place.program), place.node);
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
    lines().internal = std::move(internal);
    lines().library = std::move(library);
    lines().files.clear();
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
}

} // namespace accel_sim
