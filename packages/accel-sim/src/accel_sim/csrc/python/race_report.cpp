// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
// A race as an error in four parts, which names both sides.
#include "order/race.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace accel_sim {

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

} // namespace accel_sim
