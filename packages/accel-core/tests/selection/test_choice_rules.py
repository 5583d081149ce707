# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The choice, against rules written independently of `choose`: on every machine of the cascade, and on random ones.

The 3**9 machines have each candidate above the CPU absent, without a device, or present. The random ones have broken
and failing runtimes, PrivateUse1, ACCEL_SKIP, ACCEL_STRICT, devices that only DeepSpeed serves, third parties above,
between, below and next to the known ones, a third party that takes a known name, and device files that were found.
"""

import random
from collections import namedtuple
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest

from accel_core.devices import SUPPORTED_ACCELERATOR_LIST, known_devices
from accel_core.selection.candidates import Candidate, State
from accel_core.selection.choose import Decision, Request, choose

GONE, ABSENT, NO_DEVICE, PRESENT = "no such package", "absent", "no device", "present"
BROKEN = "broken before it is asked"
FAILS = "fails when it is asked"
#: No package of ours, only DeepSpeed's backend, if that.
BARE, BARE_NO_DEVICE, BARE_FAILS = "bare", "bare, no device", "bare, fails"


#: Values of each circumstance.
FACTORS = {
    "asked": ["npu", "mlu", "xpu", "cuda", "supa", "toy", "cpu", "", "nonsense"],
    "strict": [False, True],
    "skip": [(), ("npu",), ("cuda",), ("toy", "mlu"), ("npuu",)],
    "claimed": ["", "npu", "a stranger"],
    "deepspeed": [None, frozenset({"cpu", "cuda", "npu", "xpu", "supa"}), frozenset({"cpu", "cuda"})],
    "native": [ABSENT, NO_DEVICE, PRESENT],
    "npu": [ABSENT, NO_DEVICE, PRESENT, BROKEN, FAILS],
    "npu_priority": [700, 150],  # accel-npu's; a third party's under the same name
    "mlu": [ABSENT, PRESENT],
    "supa": [ABSENT, BARE, BARE_FAILS],
    "cuda": [ABSENT, NO_DEVICE, PRESENT, FAILS, BARE, BARE_NO_DEVICE],
    "toy": [GONE, ABSENT, NO_DEVICE, PRESENT, BROKEN, FAILS],
    "toy_priority": [1100, 750, 700, 650, 200, 100],  # above, between, below and equal to the known ones
    "toy_yields": [(), ("cuda",), ("npu",)],
    "seen": [
        (),
        ("npu",),
        ("mlu",),
        ("supa", "mlu"),
        ("npu", "cuda", "toy"),
    ],  # their device files were found
    "cpu": [PRESENT, BARE],
}
#: One machine in one set of circumstances.
Case: Any = namedtuple("Case", FACTORS)


class Contender(NamedTuple):
    """One candidate as the rules see it.

    label: of variants of a key. slot: the name under which it claims PrivateUse1.
    """

    key: str
    priority: int
    mode: str
    slot: str = ""
    yields: tuple[str, ...] = ()
    variant: str = ""

    @property
    def label(self) -> str:
        return f"{self.key} ({self.variant})" if self.variant else self.key

    @property
    def bare(self) -> bool:
        return self.mode.startswith(BARE)

    @property
    def hopeful(self) -> bool:
        return self.mode not in (GONE, ABSENT, BROKEN)

    @property
    def present(self) -> bool:
        return self.mode in (PRESENT, BARE)


class Expected(NamedTuple):
    """winner and its state, or the code of the error; how each warning begins; whose runtime was asked."""

    outcome: tuple[str, State] | str
    warnings: list[str]
    asked: list[str]


def candidates(case: Any) -> list[Contender]:
    """Highest priority first; of equals, those that yield come first."""
    everyone = [
        Contender("xpu", 800, case.native, yields=("cuda",)),
        Contender("npu", case.npu_priority, case.npu, slot="npu"),
        Contender("mlu", 300, case.mlu, slot="mlu"),
        Contender("supa", 250, case.supa, slot="supa"),
        Contender("cuda", 200, case.cuda),
        Contender("toy", case.toy_priority, case.toy, yields=case.toy_yields),
        Contender("cpu", 0, case.cpu),
    ]
    there = [c for c in everyone if c.mode != GONE]
    return sorted(there, key=lambda c: (-c.priority, not c.yields))


def expected(case: Any, everyone: list[Contender]) -> Expected:
    return detected(case, everyone) if case.asked is None else overridden(case, everyone)


def overridden(case: Any, everyone: list[Contender]) -> Expected:
    """DS_ACCELERATOR wins over priorities, ACCEL_SKIP and ACCEL_STRICT."""
    variants = [c for c in everyone if c.key == case.asked]
    if not variants:
        return Expected("ACC-201", [], [])
    without_device = [f"DS_ACCELERATOR={case.asked} is chosen though no device"]
    asked: list[Contender] = []
    for mine in variants:
        if mine.hopeful and mine.slot and case.claimed not in ("", mine.slot):
            return Expected("ACC-203", [], [])
        if mine.hopeful:
            asked.append(mine)
        if mine.present:
            return Expected(served(case, mine), [], _labels(asked))
    for mine in asked:
        if mine.mode in (NO_DEVICE, BARE_NO_DEVICE):
            taken = served(case, mine)
            return Expected(taken, without_device if isinstance(taken, tuple) else [], _labels(asked))
    return Expected(
        "ACC-202" if all(mine.mode == ABSENT for mine in variants) else "ACC-203", [], _labels(asked)
    )


def detected(case: Any, everyone: list[Contender]) -> Expected:
    """Down the cascade: who is passed over, who is asked, who may have it."""
    left = [c for c in everyone if c.key not in case.skip]
    slot = case.claimed
    asked: list[Contender] = []
    winner = None

    def ask(mine: Contender) -> bool:
        nonlocal slot
        if mine.hopeful and mine.slot and not slot and mine.key not in case.seen:
            # Of those that need the slot, one whose device file was found comes first.
            for other in left:
                rival = other.hopeful and other.slot not in ("", mine.slot) and other not in asked
                if rival and other.key in case.seen:
                    asked.append(other)
                    slot = other.slot
                    break
        free = not mine.slot or slot in ("", mine.slot)
        if mine.hopeful and free and mine not in asked:
            asked.append(mine)
            slot = slot or mine.slot
        return mine in asked and mine.present

    for mine in left:
        if winner and mine.priority < winner.priority:
            break
        betters = [c for c in left if c.key in mine.yields]
        beaten = any(c in asked and c.present for c in betters)
        if beaten or not ask(mine) or any(ask(c) for c in betters):
            continue
        if winner:
            return Expected("ACC-204", [], _labels(asked))
        winner = mine
    assert winner is not None
    broken = [c.key for c in left if c.mode == BROKEN or (c in asked and c.mode in (FAILS, BARE_FAILS))]
    if case.strict and (winner.key == "cpu" or broken):
        return Expected("ACC-205", [], _labels(asked))
    blocked = [c.key for c in left if c.hopeful and c.slot and c not in asked]
    if winner.key == "cpu" and {*broken, *blocked} & {*case.seen}:
        return Expected("ACC-203", [], _labels(asked))
    taken = served(case, winner)
    unknown_keys = [key for key in case.skip if key not in {c.key for c in everyone}]
    typo = [f"ACCEL_SKIP names {', '.join(unknown_keys)}, which no candidate"] if unknown_keys else []
    reported = (
        ["Setting accelerator to CPU"] if winner.key == "cpu" else [f"{key} is broken" for key in broken]
    )
    return Expected(taken, typo + reported if isinstance(taken, tuple) else [], _labels(asked))


def served(case: Any, mine: Contender) -> tuple[str, State] | str:
    """By its package, else by a DeepSpeed that has a backend for it, else by nobody."""
    if not mine.bare:
        return mine.label, State.CHOSEN
    if mine.key in (case.deepspeed or ()):
        return mine.key, State.DEFERRED
    return "ACC-207" if mine.key == "cpu" else "ACC-202"


def _labels(asked: list[Contender]) -> list[str]:
    return sorted(c.label for c in asked)


def evidence(mine: Contender, seen: tuple[str, ...]) -> Candidate:
    """The candidate about a candidate before anybody has asked its runtime."""
    state = State.PENDING if mine.hopeful else State.ABSENT
    if mine.mode == BROKEN:
        state = State.BROKEN
    return Candidate(
        mine.key, mine.priority, state, mine.mode, mine.variant, f"accel-{mine.key}", requires=f"{mine.key} requires …",
        runtime=mine.mode not in (ABSENT, BROKEN), hardware=mine.key in seen or None, upstream=mine.bare,
        privateuse1=mine.slot,
        yields_to=mine.yields,
    )  # fmt: skip


def answer(mine: Contender, seen: tuple[str, ...]) -> Candidate:
    """The candidate after its runtime was asked."""
    states = {
        PRESENT: State.PRESENT,
        BARE: State.PRESENT,
        NO_DEVICE: State.ABSENT,
        BARE_NO_DEVICE: State.ABSENT,
    }
    return replace(evidence(mine, seen), state=states.get(mine.mode, State.BROKEN))


def driven(case: Any, everyone: list[Contender], backwards: bool) -> tuple[Decision, list[str]]:
    """Walk as the driver does; a runtime that is imported claims the PrivateUse1 slot if it is free."""
    people = {mine.label: mine for mine in everyone}
    known = [evidence(mine, case.seen) for mine in people.values()]
    if backwards:
        known.reverse()
    request = Request(case.asked, case.strict, case.skip, case.claimed, case.deepspeed)
    asked: list[str] = []
    while True:
        decision = choose(known, request)
        if decision.candidate is None or decision.candidate.state is not State.PENDING:
            return decision, asked
        label = decision.candidate.label
        assert label not in asked, f"{label} is asked again: {case}"
        asked.append(label)
        known = [*(f for f in known if f.label != label), answer(people[label], case.seen)]
        request = replace(request, claimed=request.claimed or people[label].slot)


def check(case: Any, everyone: list[Contender], backwards: bool) -> tuple[Expected, Decision]:
    wanted = expected(case, everyone)
    decision, asked = driven(case, everyone, backwards)
    taken = decision.candidate
    outcome = decision.error.code if decision.error else (taken and taken.label, taken and taken.state)
    assert (outcome, sorted(asked)) == (wanted.outcome, wanted.asked), (case, everyone)
    assert len(decision.warnings) == len(wanted.warnings), (case, decision.warnings)
    for warning, beginning in zip(sorted(decision.warnings), sorted(wanted.warnings), strict=True):
        assert warning.startswith(beginning), case
    assert (taken is None) == (decision.error is not None)
    if taken is not None:
        assert [f for f in decision.candidates if f.state in (State.CHOSEN, State.DEFERRED)] == [taken]
        assert all(f.state not in (State.PENDING, State.PRESENT) for f in decision.candidates)
    return wanted, decision


@pytest.mark.parametrize("asked", [FACTORS["asked"], [None]], ids=["asked for", "detected"])
def test_random_circumstances_come_out_as_the_rules_say(asked: list[Any]) -> None:
    # With DS_ACCELERATOR most circumstances do not matter, so detection has cases of its own.
    dice = random.Random(20_260_519)
    for _ in range(4_000):
        case = Case(*map(dice.choice, {**FACTORS, "asked": asked}.values()))
        check(case, candidates(case), backwards=dice.random() < 0.5)


#: Highest first, as users know it.
ORDER = (
    "xpu.external", "xpu (ipex)", "xpu (native)", "npu", "sdaa", "mps", "hpu", "mlu", "supa", "klxpu", "cuda", "cpu",
)  # fmt: skip


def state(mine: Contender, wanted: Expected) -> State:
    """What becomes of a candidate."""
    chosen = isinstance(wanted.outcome, tuple)
    if chosen and wanted.outcome[0] == mine.label:
        return State.CHOSEN
    if mine.mode == ABSENT or (mine.mode == NO_DEVICE and mine.label in wanted.asked):
        return State.ABSENT
    # Where nobody is chosen, nobody is outranked either.
    return State.OUTRANKED if chosen else State.PENDING


@pytest.mark.parametrize("asked", [None, *SUPPORTED_ACCELERATOR_LIST])
def test_every_machine_gets_the_accelerator_of_the_rules(asked: str | None) -> None:
    case = Case(*(values[0] for values in FACTORS.values()))._replace(asked=asked)
    rows = [row for label in ORDER for row in known_devices(label.partition(" ")[0])]
    rows = list(dict.fromkeys(rows))
    dice, kinds = random.Random(f"{asked}"), (ABSENT, NO_DEVICE, PRESENT)
    for nine in product(
        kinds, repeat=9
    ):  # all of them; supa and klxpu, which have no rule of their own, are drawn
        modes = (*nine[:8], *dice.choices(kinds, k=2), nine[8])
        everyone = [
            Contender(row.key, row.priority, mode, "", ("cuda",) * (row.variant == "native"), row.variant)
            for row, mode in zip(rows, (*modes, PRESENT), strict=True)
        ]
        wanted, decision = check(case, everyone, backwards=False)
        states = {candidate.label: candidate.state for candidate in decision.candidates}
        assert states == {mine.label: state(mine, wanted) for mine in everyone}, (asked, modes)
    assert [mine.label for mine in sorted(everyone, key=lambda mine: -mine.priority)] == [*ORDER]
    assert {label.partition(" ")[0] for label in ORDER} == set(SUPPORTED_ACCELERATOR_LIST)
