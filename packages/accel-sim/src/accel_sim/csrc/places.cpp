// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// Where a program calls something: a race as an error that names both sides.
#include "lines.h"
#include "order.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/node.h>

#include <mutex>
#include <unordered_map>

namespace accel_sim {

namespace {

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
    text += (text.empty() ? "" : kCaller) + text_of_line(number) + " in " +
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
  const char *what, *remedy;
};

Words words(RaceKind kind) {
  switch (kind) {
    case RaceKind::WithHost:
      return {
          "the host touches memory that a device may still be using",
          "synchronize the stream, or an event recorded after that copy, before the host touches the memory"};
    case RaceKind::WithCollective:
      return {
          "a tensor of a collective that may still be under way is touched",
          "call wait() on the collective's work, on this stream or one that it waits for, before this"};
    case RaceKind::HandedOut:
      return {
          "memory is handed out again while another stream may still be using it",
          "call tensor.record_stream(stream) for the other stream, or let the tensor's own stream wait for it"
          " before the tensor is freed"};
    default:
      return {
          "two accesses to the same memory are not ordered, and one of them writes",
          "let the later stream wait: wait_stream, or an event recorded after the earlier access"};
  }
}

std::string text(const RaceSide& party) {
  return party.action + " on " + party.place + "\nat " + text_of(*party.site);
}

} // namespace

void raise_race(RaceKind kind, const RaceSide& now, const RaceSide& before) {
  const auto [what, remedy] = words(kind);
  py::gil_scoped_acquire gil;
  const auto error_class = py::module_::import("accel_sim.errors").attr("DataRace");
  const auto error = error_class(
      what, py::arg("do") = remedy, py::arg("details") = text(now) + "\nunordered with\n" + text(before));
  PyErr_SetObject(error_class.ptr(), error.ptr());
  python_error raised;
  raised.persist();
  throw raised;
}

} // namespace accel_sim
