# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rehearsed rank: `python -m accel_sim.rehearse.rank OPTIONS script.py ARGS…`, started by `accel rehearse`."""

from __future__ import annotations

import os
import re
import runpy
import signal
import sys
import traceback
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch  # noqa: F401  activates a simulated device whose package does that

from accel_sim import activation, simulation
from accel_sim.rehearse import phases, program, record
from accel_sim.rehearse.program import is_program, short
from accel_sim.rehearse.record import PHASES, Failure, Options, Rank, Tape

#: Places in the record, and points of the timeline.
_PLACES, _POINTS = 24, 2000


def main() -> int:
    """Rehearse the program in this process, and write what it did."""
    options, command = Options.from_json(sys.argv[1]), sys.argv[2:]
    # The command sends it to end the rank; a background job of a shell would ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rehearsal = _Rehearsal(options)
    rehearsal.run(command)
    rehearsal.write()
    sys.stdout.flush()
    sys.stderr.flush()
    # Neither threads of the program nor what it registered for the end of a real run.
    os._exit(0)


class _Rehearsal:
    """The program, the simulated device under it, and what watches both."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.simulation = simulation.current() or activation.activate(options.device)
        self.native = native = self.simulation.native
        files = program.internal(), program.libraries()
        native.dry_enable(64 << 10, 4 << 20, options.reserve, options.pad, options.arena, *files)
        for path in options.replay:
            given = Tape.read(path).given
            native.dry_replay({channel: bytes.fromhex(value) for channel, value in given.items()})
        program.replace_groups(self.simulation, options.rank, options.ranks)
        self.phases = phases.Phases(native, self.simulation.type, options.steps)
        self.watch = program.Watch(self.simulation.type)
        self.outcome: record.Outcome = "finished"
        self.failure: Failure | None = None

    def run(self, command: list[str]) -> None:
        """Run the script until its last rehearsed step has been taken."""
        self.phases.install()
        self.watch.install()
        program.hook_deepspeed(self.phases, self.watch, fused=self.options.fused)
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
            "out of memory" if full else "error",
            message[:2000],
            *where,
            source=_source(error),
            asked=int(float(asked[1]) * 2**20) if asked else 0,
        )

    # ----------------------------------------------------------------------------------------- record
    def write(self) -> None:
        """Write the record and the tape."""
        recorded, self.missing = self.native.dry_recorded()
        try:
            peers = program.peers(list(recorded), self.options.rank)
            experts = program.experts(self.options.rank)
        except Exception:  # the program has destroyed its groups
            peers = experts = ()
        given = {channel: value.hex() for channel, value in recorded.items()}
        Path(self.options.tape).write_text(Tape(given, peers, experts).to_json(), encoding="utf-8")
        partial = Path(f"{self.options.record}.part")
        partial.write_text(self._record().to_json(), encoding="utf-8")
        partial.rename(self.options.record)

    def _record(self) -> Rank:
        # Of the ledger: the program can reset the peaks in the device's own statistics.
        peaks: dict[int, Any] = self.native.dry_peaks()
        pageable, pinned = self.native.dry_host()
        computed: dict[str, tuple[int, str]] = self.native.dry_computed()
        highest = max(peaks.values(), key=lambda peak: int(peak["requested"]), default=None)

        def most(layer: str) -> int:
            return max((int(peak[layer]) for peak in peaks.values()), default=0)

        learned = phases.learn(
            (row, label) for peak in peaks.values() for row, label, _bytes, _count in peak["held"]
        )
        return Rank(
            rank=self.options.rank,
            role=self.options.role,
            outcome=self.outcome,
            requested=most("requested"),
            allocated=most("allocated"),
            reserved=most("reserved"),
            phases=tuple(self._phase(number, peak, learned) for number, peak in sorted(peaks.items())),
            timeline=_thinned(self.phases.timeline),
            largest=self._places(highest, learned) if highest else (),
            host=record.Host(pageable, pinned),
            collectives=self._collectives(),
            failure=self.failure,
            computed=tuple(f"{name} ({calls} calls)" for name, (calls, _why) in sorted(computed.items())),
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

    def _collectives(self) -> tuple[record.Collective, ...]:
        try:
            members = program.members()
        except Exception:  # the program has destroyed its groups
            members = {}
        steps = max(self.phases.steps - 1, 1)
        merged: dict[tuple[str, str, int, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (operation, group, size, phase, dtype), (calls, moved) in self.native.dry_collectives():
            name = program.group_name(members.get(group, ()), self.options.ranks)
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
