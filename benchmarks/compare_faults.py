# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Numeric faults planted in a hardware-like simulated device, and what `accel compare` names.

    python -m benchmarks.compare_faults

Each fault is a replay of its own, so that all take about an hour. What is done is kept in runs/compare-faults: the same
command goes on from there. The programs are those of the tests of accel-testkit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.launch import BIN, ROOT, free_port

_PROGRAMS = ROOT / "packages/accel-testkit/tests/compare/programs"
_DEVICE = "npu"
_STAGES = (0, 2, 3)
#: Of each program: an operator of its forward pass, one of its backward pass, an epsilon beside its gradients.
_OF_PROGRAM = {
    "language": ("native_layer_norm", "gelu_backward", "1e-4"),
    "images": ("convolution", "threshold_backward", "1e-4"),
    "recurrent": ("tanh", "sigmoid_backward", "1e-4"),
    "gated": ("silu", "silu_backward", "1e-2"),
}
#: Modules with the first parameter of a program, which a fault leaves as it was.
_FIRST = ("embedding", "layers.0", "first")
_KINDS = ("scale", "truncated", "last", "nan", "shifted", "sign")
_KERNELS = {
    "language": (
        *("native_layer_norm", "addmm", "gelu", "_softmax", "embedding", "bmm", "_log_softmax"),
        "gelu_backward",
    ),
    "images": ("convolution", "relu"),
}
_NAMED, _BELOW, _ELSEWHERE = "named", "below its bound", "elsewhere"
_TEXT = """\
Each fault is planted into a simulated {device} in [hardware-like
mode](../simulated-devices.md#hardware-like-mode), where sums have another order and denormals are zero. The
program is replayed with a record of the CPU by operation. *Named*: the first difference is the operation, the
optimizer's step or the collective with the fault, at its first wrong step. *Below its bound*: nothing is named,
because the fault is smaller than rounding explains, and the output says which event is nearest to its bound.
*Elsewhere*: another event is named, or another step. A fault of one part in ten million is there to be below its
bound, and does not count. A program without a fault is replayed, too.

{rate}

    python -m benchmarks.compare_faults"""


@dataclass(frozen=True)
class Case:
    """A fault of one program. stage: of ZeRO, on two ranks; None: plain PyTorch. fault: variables of the program."""

    program: str
    stage: int | None
    fault: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.fault)
        return f"{self.program}, {self.where}: {words or 'no fault'}"

    @property
    def where(self) -> str:
        return "plain" if self.stage is None else f"ZeRO {self.stage}"

    @property
    def counts(self) -> bool:
        """Whether the fault is meant to be named."""
        return bool(self.fault) and ":tiny:" not in self.fault[0][1]

    def command(self) -> list[str]:
        if self.stage is None:
            return ["train.py", self.program]
        launcher = (BIN / "accel", "launch", "--num_accelerators", "2", "--master_port", free_port())
        return [*map(str, launcher), "zero.py", self.program, str(self.stage)]


def cases() -> Iterator[Case]:
    """All faults, those of all programs first."""
    for program, (forward, backward, epsilon) in _OF_PROGRAM.items():
        for stage in _STAGES:
            yield Case(program, stage)
            yield Case(program, stage, (("FAULT", f"{forward}:scale:0"),))
            yield Case(program, stage, (("FAULT", f"{backward}:truncated:1"),))
            yield Case(program, stage, (("OPTIMIZER_FAULT", epsilon),))
            yield Case(program, stage, (("LOST_GRADIENT", "1"),))
            yield Case(program, stage, (("DOUBLED_GRADIENT", "1"),))
    for program in _OF_PROGRAM:
        yield Case(program, None)
        yield Case(program, None, (("OPTIMIZER_FAULT", _OF_PROGRAM[program][2]),))
        yield Case(program, None, (("STALE_WEIGHT", "1"),))
        yield Case(program, None, (("FAULT", f"{_OF_PROGRAM[program][0]}:tiny:0"),))
    yield Case("language", None, (("MASK_FAULT", "1"),))
    for program, operators in _KERNELS.items():
        for operator in operators:
            for number, kind in enumerate(_KINDS):
                yield Case(program, None, (("FAULT", f"{operator}:{kind}:{number % 3}"),))


def record(case: Case, folder: Path) -> Path:
    """Record the program without a fault, once; returns the folder."""
    into = folder / f"{case.program}-{case.where.replace(' ', '')}"
    if not (into / "record.json").exists():
        done = _compare(["record", "--by", "operation", str(into), "--", *case.command()], {})
        if done.returncode:
            raise SystemExit(f"{case.name} cannot be recorded:\n{done.stderr}")
    return into


def replay(case: Case, folder: Path) -> dict[str, Any]:
    """Replay the program with its fault; returns what was named."""
    struck = folder / f"struck-{os.getpid()}"
    struck.unlink(missing_ok=True)
    recorded = record(case, folder)
    sim = ("sim", _DEVICE, "--like-hardware", "--devices", "2", "--", str(BIN / "accel"))
    environment = {**dict(case.fault), "STRUCK": str(struck)}
    done = _compare(["replay", str(recorded), "--", *case.command()], environment, sim)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{case.name}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
    found = json.loads((recorded / "replay" / "compare.json").read_text(encoding="utf-8"))
    step = int(struck.read_text(encoding="utf-8")) if struck.exists() else None
    first = found["first"]
    return {
        "case": case.name, "verdict": _verdict(case, first and first["key"], step, found["nearest"]),
        "first": first and first["text"][0], "struck in step": step,
    }  # fmt: skip


def _verdict(
    case: Case, key: Mapping[str, Any] | None, step: int | None, nearest: Mapping[str, Any] | None
) -> str:
    if key is None:
        return _BELOW if nearest or not case.fault else _ELSEWHERE
    for name, value in case.fault:
        expected = {
            "FAULT": key["name"].startswith(f"aten.{value.partition(':')[0]}.") and key["step"] == step,
            "OPTIMIZER_FAULT": key["phase"] == "step" and key["step"] == 0,
            "LOST_GRADIENT": key["phase"] == "collective" and key["step"] == 1,
            "DOUBLED_GRADIENT": key["phase"] == "collective" and key["step"] == 1,
            "STALE_WEIGHT": any(f".{module}" in key["where"] for module in _FIRST) and key["step"] == 2,
            "MASK_FAULT": "attention" in key["where"] and key["step"] == 1,
        }
        return _NAMED if expected[name] else _ELSEWHERE
    return _ELSEWHERE


def _compare(
    arguments: list[str], more: Mapping[str, str], before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "accel"), *before, "compare", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        command, cwd=_PROGRAMS, env=environment, capture_output=True, text=True, check=False
    )


def rows(done: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each program and way to run it."""
    grouped: dict[tuple[str, str], list[Case]] = {}
    for case in cases():
        if case.name in done:
            grouped.setdefault((case.program, case.where), []).append(case)
    return [
        {
            "program": program,
            "run": where,
            "faults": sum(case.counts for case in group),
            "named": sum(case.counts and done[case.name]["verdict"] == _NAMED for case in group),
            "below their bound": sum(case.counts and done[case.name]["verdict"] == _BELOW for case in group),
            "elsewhere": sum(case.counts and done[case.name]["verdict"] == _ELSEWHERE for case in group),
            "without a fault": next(
                ("nothing is named" if done[c.name]["first"] is None else "named" for c in group if not c.fault),
                "not run",
            ),
            "of one part in ten million": next(
                (done[c.name]["verdict"] for c in group if c.fault and not c.counts), ""
            ),
        }
        for (program, where), group in grouped.items()
    ]  # fmt: skip


def page(done: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Write the page of what is done."""
    table, all_cases = rows(done), [case for case in cases() if case.counts]
    faults, named = (sum(row[column] for row in table) for column in ("faults", "named"))
    rate = (
        f"**{named} of {faults} faults are named: {100 * named / max(faults, 1):.1f} %.** The goal is 95 %."
    )
    if len(all_cases) > faults:
        rate += f" {len(all_cases) - faults} of {len(all_cases)} faults were not run."
    wrong = [
        f"- {case.name}: {done[case.name]['verdict']}; {done[case.name]['first'] or 'nothing is named'}"
        for case in cases()
        if case.name in done and case.counts and done[case.name]["verdict"] != _NAMED
    ]
    text = _TEXT.format(device=_DEVICE, rate="\n".join([rate, *([""] if wrong else []), *wrong]))
    results.write("compare-faults", "Planted numeric faults", text, table, out)


def main() -> None:
    parser = results.parser(__doc__)
    parser.add_argument("--match", default="", help="run only faults whose name has this word, as 'ZeRO 0'")
    given = parser.parse_args()
    folder = ROOT / "runs/compare-faults"
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "done.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    done = {one["case"]: one for one in map(json.loads, lines)}
    for case in cases():
        if case.name not in done and given.match in case.name:
            done[case.name] = found = replay(case, folder)
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{case.name}: {found['verdict']}", file=sys.stderr, flush=True)
    page(done, given.out)


if __name__ == "__main__":
    main()
