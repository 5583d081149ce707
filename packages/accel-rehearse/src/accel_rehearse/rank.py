# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rehearsed rank: `python -m accel_rehearse.rank FOLDER RANK script.py ARGS…`."""

from __future__ import annotations

import os
import pickle
import re
import runpy
import signal
import sys
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch  # noqa: F401  activates a simulated device whose package does that

from accel_rehearse import phases, program, record
from accel_rehearse.native import enable
from accel_rehearse.program import is_program, short
from accel_rehearse.record import PHASES, DryRank, Failure, Tape
from accel_sim import activation, simulation

#: Places in the record, and points of the timeline.
_PLACES, _POINTS = 24, 2000
#: Bytes of the largest tensors that are computed, on the device and on the host.
_LIMITS = 64 << 10, 4 << 20


def main() -> int:
    """Rehearse the program in this process, and write what it did."""
    folder, rank, *command = sys.argv[1:]
    # The command sends it to end the rank; a background job of a shell would ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rehearsal = _Rehearsal(Path(folder), int(rank))
    rehearsal.run(command)
    rehearsal.write()
    sys.stdout.flush()
    sys.stderr.flush()
    # Neither threads of the program nor what it registered for the end of a real run.
    os._exit(0)


class _Rehearsal:
    """The program, the simulated device under it, and what watches both."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.request = request = pickle.loads((folder / "request").read_bytes())
        self.simulation = simulation.current() or activation.activate(request.profile.vendor)
        self.native = enable(self.simulation, _LIMITS, request.reserve)
        self.native.set_lines(program.internal(), program.libraries())
        for earlier in folder.glob("rank*"):
            self.native.replay(pickle.loads(earlier.read_bytes())[1].given)
        program.replace_groups(self.simulation, self.native, rank, request.ranks)
        self.phases = phases.Phases(self.native, self.simulation.type, request.steps)
        self.watch = program.Watch(self.simulation.type)
        self.outcome: record.Outcome = "finished"
        self.failure: Failure | None = None

    def run(self, command: list[str]) -> None:
        """Run the script until its last rehearsed step has been taken."""
        self.phases.install()
        self.watch.install()
        program.hook_deepspeed(self.phases, self.watch)
        try:
            _run(command)
        except phases.Rehearsed:
            pass
        except SystemExit as error:
            if error.code not in (None, 0):
                self._failed(error, f"the program ended with status {error.code}")
        except KeyboardInterrupt:
            self.outcome = "stopped"
        except BaseException as error:
            self._failed(error, f"{type(error).__name__}: {error}")

    def _failed(self, error: BaseException, message: str) -> None:
        raised, phase, module = self.phases.failed
        where = (PHASES[phase], module) if raised == id(error) else ("", "")
        # Allocators of mps and hpu raise no OutOfMemoryError.
        full = isinstance(error, RuntimeError) and "Tried to allocate" in message
        asked = re.search(r"Tried to allocate ([\d.]+) MiB", message) if full else None
        self.outcome = "out of memory" if full else "failed"
        if not full:
            traceback.print_exc()
        self.failure = Failure(
            message[:2000],
            *where,
            source=_source(error),
            asked=int(float(asked[1]) * 2**20) if asked else 0,
        )

    # ----------------------------------------------------------------------------------------- record
    def write(self) -> None:
        """Write the record and the tape."""
        recorded, self.missing = self.native.recorded()
        tape = Tape(recorded, program.peers(list(recorded), self.rank), program.experts(self.rank))
        partial = self.folder / "partial"
        partial.write_bytes(pickle.dumps((self._record(), tape)))
        partial.rename(self.folder / f"rank{self.rank}")

    def _record(self) -> DryRank:
        # Of the ledger: the program can reset the peaks in the device's own statistics.
        peaks: dict[int, Any] = self.native.peaks()
        host, computed, collectives = self.native.counts()
        highest = max(peaks.values(), key=lambda peak: int(peak["requested"]), default=None)

        def most(layer: str) -> int:
            return max((int(peak[layer]) for peak in peaks.values()), default=0)

        learned = phases.learn(
            (row, label) for peak in peaks.values() for row, label, _bytes, _count in peak["held"]
        )
        return DryRank(
            rank=self.rank,
            role="",
            outcome=self.outcome,
            requested=most("requested"),
            allocated=most("allocated"),
            reserved=most("reserved"),
            phases=tuple(self._phase(number, peak, learned) for number, peak in sorted(peaks.items())),
            timeline=_thinned(self.phases.timeline),
            largest=self._places(highest, learned) if highest else (),
            host=record.HostUse(*host),
            collectives=self._collectives(collectives),
            failure=self.failure,
            computed=tuple(f"{name} ({calls} calls)" for name, calls in sorted(computed.items())),
            unanswered=self.missing,
            notes=self._notes(),
        )

    def _phase(self, number: int, peak: Any, learned: dict[tuple[Any, ...], int]) -> record.Phase:
        by_kind: dict[str, int] = defaultdict(int)
        for row, label, held, _count in peak["held"]:
            by_kind[phases.kind_of(row, label, learned)] += held
        _phase, module, library, program, _node = peak["place"]
        return record.Phase(
            PHASES[number],
            peak["requested"],
            peak["allocated"],
            peak["reserved"],
            dict(by_kind),
            self.phases.paths[module],
            short(program or library),
        )

    def _places(self, peak: Any, learned: dict[tuple[Any, ...], int]) -> tuple[record.Place, ...]:
        merged: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for row, label, held, count in peak["held"]:
            _phase, module, library, program, _node = row
            source = short(program or library)
            if library and program:
                source += f" ({short(library)})"
            key = source, self.phases.paths[module], phases.kind_of(row, label, learned)
            merged[key][0] += held
            merged[key][1] += count
        largest = sorted(merged.items(), key=lambda item: -item[1][0])[:_PLACES]
        return tuple(record.Place(*key, held, count) for key, (held, count) in largest)

    def _collectives(self, counted: list[Any]) -> tuple[record.Collective, ...]:
        members = program.members()  # empty if the program has destroyed its groups
        steps = max(self.phases.steps - 1, 1)
        merged: dict[tuple[str, str, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (operation, group, size, phase, dtype), (calls, moved) in counted:
            name = program.group_name(members.get(group, ()), self.request.ranks)
            count = merged[operation, name, size, PHASES[phase], dtype]
            count[0] += calls
            count[1] += moved
        return tuple(
            record.Collective(*key, calls / steps, moved / steps) for key, (calls, moved) in merged.items()
        )

    def _notes(self) -> tuple[str, ...]:
        notes = list(self.watch.notes)
        if self.outcome == "finished" and not self.phases.steps:
            ended = "the program ended without a step of an optimizer: only what it did was rehearsed"
            notes.insert(0, ended)
        return tuple(notes)


def _run(command: list[str]) -> None:
    """Run a script, or a module after `-m`, as Python does."""
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = str(Path(command[0]).resolve().parent)
        runpy.run_path(command[0], run_name="__main__")


def _source(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_program(frame.filename)]
    return short(f"{own[-1].filename}:{own[-1].lineno}") if own else ""


def _thinned(events: list[tuple[int, int]]) -> tuple[tuple[int, int, str], ...]:
    """Return the highest point of each part of a step."""
    width = -(-len(events) // _POINTS) or 1
    parts = (range(begin, min(begin + width, len(events))) for begin in range(0, len(events), width))
    chosen = (max(part, key=lambda index: events[index][0]) for part in parts)
    return tuple((index, events[index][0], PHASES[events[index][1]]) for index in chosen)


if __name__ == "__main__":
    sys.exit(main())
