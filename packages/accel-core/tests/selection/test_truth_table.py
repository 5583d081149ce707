# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The whole truth table of the selection: 3**9 machines, detected and with each value of DS_ACCELERATOR.

Nine candidates above the CPU are each absent, a runtime without a device, or present. What is expected
is written here as rules of its own, with the cascade's order spelled out once more, and shares nothing
with `accel_core.selection.choose`.
"""

from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pytest

from accel_core import cascade
from accel_core.selection.candidates import Candidate, State
from accel_core.selection.choose import Request, Step, Verdict, choose

ABSENT, NO_DEVICE, PRESENT = MODES = range(3)

#: Highest first, as users know it.
ORDER = (
    "xpu.external", "xpu (ipex)", "xpu (native)", "npu", "sdaa", "mps", "hpu", "mlu", "cuda", "cpu",
)  # fmt: skip
NATIVE, CUDA, CPU = map(ORDER.index, ("xpu (native)", "cuda", "cpu"))

OVERRIDES = ("cuda", "cpu", "xpu", "xpu.external", "npu", "mps", "hpu", "mlu", "sdaa")

Machine = tuple[int, ...]


class Outcome(NamedTuple):
    """What a selection comes to. asked: whose runtime was imported; warning, error: how the text begins."""

    winner: str
    asked: list[str]
    states: list[State]
    warnings: list[str]
    error: str


# ------------------------------------------------------------------------------------------- expectation


def expected(machine: Machine, override: str | None) -> Outcome:
    """The rules of the selection, applied to one machine."""
    mine = [i for i, label in enumerate(ORDER) if override in (None, label.partition(" ")[0])]
    installed = [i for i in mine if machine[i] != ABSENT]
    rightful = [i for i in installed if machine[i] == PRESENT]
    # The native variant of xpu leaves the machine to CUDA, unless it is asked for.
    if override is None and machine[CUDA] == PRESENT and NATIVE in rightful:
        rightful.remove(NATIVE)
    winner = next(iter(rightful + installed), None)

    reached = winner if rightful else CPU
    asked = {i for i in installed if i <= reached}
    native_leads = machine[NATIVE] == PRESENT and PRESENT not in machine[:NATIVE]
    if override is None and native_leads and CUDA in installed:
        asked.add(CUDA)

    # Where nobody is chosen, nobody is outranked either: the others were not asked.
    unasked = State.PENDING if winner is None else State.OUTRANKED
    states = [_state(machine[i], i in asked, unasked) for i in range(len(ORDER))]
    if winner is not None:
        states[winner] = State.CHOSEN
    warnings, error = [], ""
    if winner is None:
        error = f"[ACC-202] DS_ACCELERATOR={override} cannot be served: "
    elif override is None and winner == CPU:
        warnings = ["Setting accelerator to CPU"]
    elif machine[winner] == NO_DEVICE:
        warnings = [f"DS_ACCELERATOR={override} is chosen though no device is present"]
    return Outcome(ORDER[winner] if winner is not None else "", _labels(asked), states, warnings, error)


def _state(mode: int, asked: bool, unasked: State) -> State:
    return State.ABSENT if mode == ABSENT or (asked and mode == NO_DEVICE) else unasked


def _labels(indices: set[int]) -> list[str]:
    return [ORDER[index] for index in sorted(indices)]


# ------------------------------------------------------------------------------------------------- drive


def _evidence(label: str) -> dict[int, Candidate]:
    """A candidate before anybody has asked its runtime."""
    key, _, variant = label.removesuffix(")").partition(" (")
    row = next(row for row in cascade.entries(key) if row.variant == variant)
    slot, yields_to = key if key in ("npu", "sdaa", "mlu") else "", ("cuda",) if variant == "native" else ()
    pending = Candidate(
        key, row.priority, State.PENDING, "its evidence", variant, row.distribution, "1.0", row.sentence(),
        runtime=True, privateuse1=slot, yields_to=yields_to,
    )  # fmt: skip
    return {
        ABSENT: replace(pending, state=State.ABSENT, runtime=False, reason="not installed"),
        NO_DEVICE: pending,
        PRESENT: pending,
    }


EVIDENCE = [_evidence(label) for label in ORDER]
CONFIRMED = {
    label: {
        NO_DEVICE: replace(evidence[NO_DEVICE], state=State.ABSENT, devices=0, reason="counts 0"),
        PRESENT: replace(evidence[PRESENT], state=State.PRESENT, devices=2, reason="counts 2"),
    }
    for label, evidence in zip(ORDER, EVIDENCE, strict=True)
}


def driven(machine: Machine, request: Request) -> tuple[Verdict, list[str]]:
    """Walk as the driver does: ask the runtime that `choose` names, put its answer in, choose again."""
    candidates = [evidence[mode] for evidence, mode in zip(EVIDENCE, machine, strict=True)]
    asked: list[str] = []
    while True:
        verdict = choose(candidates, request)
        if verdict.step is not Step.CONFIRM:
            return verdict, asked
        assert verdict.candidate is not None
        label = verdict.candidate.label
        assert label not in asked, f"{label} is asked again on {machine}"
        asked.append(label)
        answer = CONFIRMED[label][machine[ORDER.index(label)]]
        candidates = [*(f for f in candidates if f.label != label), answer]


def outcome(machine: Machine, request: Request) -> Outcome:
    verdict, asked = driven(machine, request)
    winner = verdict.candidate.label if verdict.candidate else ""
    assert verdict.step is (Step.CONSTRUCT if winner else Step.FAIL), (machine, verdict)
    state = {candidate.label: candidate.state for candidate in verdict.candidates}
    return Outcome(
        winner,
        sorted(asked, key=ORDER.index),
        [state[label] for label in ORDER],
        list(verdict.warnings),
        str(verdict.error or ""),
    )


def _agree(seen: Outcome, wanted: Outcome) -> bool:
    texts = zip([*seen.warnings, seen.error], [*wanted.warnings, wanted.error], strict=False)
    return (
        seen[:3] == wanted[:3]
        and len(seen.warnings) == len(wanted.warnings)
        and bool(seen.error) == bool(wanted.error)
        and all(text.startswith(beginning) for text, beginning in texts)
    )


@pytest.mark.parametrize("override", [None, *OVERRIDES])
def test_every_machine_gets_the_accelerator_of_the_rules(override: str | None) -> None:
    machines = [(*above, PRESENT) for above in product(MODES, repeat=len(ORDER) - 1)]
    assert len(machines) == 19_683
    request = Request(asked=override)
    wrong = []
    for machine in machines:
        seen, wanted = outcome(machine, request), expected(machine, override)
        if not _agree(seen, wanted):
            wrong.append((machine, seen, wanted))
    assert not wrong, f"{len(wrong)} rows; the first:\n" + "\n".join(map(str, wrong[0]))


def test_overrides_of_the_table_are_the_published_list() -> None:
    assert sorted(OVERRIDES) == sorted(cascade.SUPPORTED_ACCELERATOR_LIST)
