# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine this environment: the selection of a run, with runtimes confirmed in child processes.

One child takes the steps of a run, and is replaced if it dies; others confirm the candidates that it does not reach.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import sys
import traceback
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from accel_core import api, env, launchers
from accel_core.__about__ import __version__
from accel_core.errors import AccelError, InvalidEnvironment
from accel_core.install import pip_install
from accel_core.native import torch_locks
from accel_core.processes import Reply, Worker, serve
from accel_core.selection.candidates import Candidate, CandidateSet, State, privateuse1_holder
from accel_core.selection.choose import Decision, Request, passed_over
from accel_core.selection.current import (
    Explanation,
    Selection,
    explained,
    request_from_environment,
    run_selection,
)
from accel_core.upstream import patches, program, ranks
from accel_core.upstream.backends import StockDeepSpeed
from accel_core.upstream.contract import SUPPORTED, TRIED, TRIED_TORCH
from accel_core.upstream.patches import Status
from accel_core.vendor import (
    ENTRY_POINT_GROUP,
    declaring_package,
    distribution_version,
    in_range,
    module_exists,
)

#: Entry points of this group are called at the end of `import torch`.
TORCH_GROUP = "torch.backends"
#: torch's own switch, and the only value for which it calls them.
AUTOLOAD, AUTOLOAD_ON = "TORCH_DEVICE_BACKEND_AUTOLOAD", "1"

_CORE = "accel-core"


@dataclass(frozen=True)
class Unmet:
    """A requirement of a package that this environment does not meet; `found` is empty if not installed."""

    package: str
    version: str
    requirement: str
    name: str
    found: str


@dataclass(frozen=True)
class DeepSpeedInfo:
    """The installed DeepSpeed. If there is none, `version` is empty and `in_range` is None.

    tried: training with this release was tested.
    """

    version: str
    supported: str
    in_range: bool | None
    tried: bool = True


@dataclass(frozen=True)
class Bridge:
    """State of the hooks in a program that imports torch first: on if deepspeed uses our accelerators; the reason.

    repair: advice, if it is off although no variable disables it.
    """

    on: bool
    reason: str
    repair: str = ""


def autoload_on() -> bool:
    """Return whether torch calls its backend entry points in this environment."""
    return os.environ.get(AUTOLOAD, AUTOLOAD_ON) == AUTOLOAD_ON


def installed_deepspeed() -> DeepSpeedInfo:
    """Return the installed DeepSpeed, from its metadata."""
    version = distribution_version("deepspeed") or ("unknown" if module_exists("deepspeed") else "")
    if not version:
        return DeepSpeedInfo("", str(SUPPORTED), None)
    return DeepSpeedInfo(
        version, str(SUPPORTED), in_range(version, str(SUPPORTED)), in_range(version, str(TRIED))
    )


def bridge_state() -> Bridge:
    """Return whether the bridge to DeepSpeed is on, and why."""
    try:
        wanted = env.BRIDGE.on()
    except InvalidEnvironment as error:
        return Bridge(False, error.message, error.do)
    if not wanted:
        return Bridge(False, f"{env.BRIDGE.name}={env.BRIDGE.get()}: DeepSpeed chooses by itself")
    if not module_exists("deepspeed"):
        return Bridge(False, "there is no deepspeed to join")
    if not any(
        declaring_package(point)[0] == _CORE for point in importlib.metadata.entry_points(group=TORCH_GROUP)
    ):
        found = f"{_CORE} is installed without its entry point in group {TORCH_GROUP}"
        return Bridge(False, found, pip_install(_CORE, options="--force-reinstall"))
    if not autoload_on():
        return Bridge(
            False, f"{AUTOLOAD}={os.environ[AUTOLOAD]}: only after `import accel_core` ahead of deepspeed"
        )
    return Bridge(True, "`import torch` joins it to DeepSpeed")


def unmet_requirements() -> list[Unmet]:
    """Return unmet requirements of accel-core, the vendor packages and torch's backend extensions."""
    points = [
        point
        for group in (ENTRY_POINT_GROUP, TORCH_GROUP)
        for point in importlib.metadata.entry_points(group=group)
        if point.dist is not None
    ]
    names = {_CORE} | {declaring_package(point)[0] for point in points}
    return [lack for name in sorted(names) for lack in _unmet_by(name)]


def _unmet_by(name: str) -> list[Unmet]:
    try:
        dist = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return []
    lacks = []
    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = distribution_version(requirement.name) or ""
        if not found or not requirement.specifier.contains(found, prereleases=True):
            lacks.append(Unmet(name, dist.version, text, requirement.name, found))
    return lacks


#: Runs `main` in a child process.
CHILD = ("-c", "from accel_core.cli.doctor.examine import main; main()")


@dataclass(frozen=True)
class Torch:
    """The installed torch.

    version:         empty when it is not installed.
    imports:         `import torch` works in this environment.
    without_vendors: it works with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
    reason:          why it does not work, in one line.
    culprit:         the backend extension (entry point) that breaks the import, with its package and version.
    claimed:         the backend that holds torch's PrivateUse1 slot after the import.
    error:           the traceback.
    shadow:          a file or folder called torch that is imported in its place.
    tried:           training with DeepSpeed was tested with this release.
    """

    version: str = ""
    imports: bool = False
    without_vendors: bool = False
    reason: str = ""
    culprit: str = ""
    culprit_package: str = ""
    culprit_version: str = ""
    claimed: str = ""
    error: str = ""
    shadow: str = ""
    tried: bool = True


def examine_torch(plain: Reply, seconds: float) -> Torch:
    """Return the state of torch, given the reply of the child that imported it.

    If that failed, another child imports torch without backend extensions and calls each of them, to find the
    one that fails.
    """
    installed = distribution_version("torch") or "unknown"
    reason = plain.failure or plain.answer["reason"]
    if not reason:
        version = plain.answer["version"]
        tried = in_range(version, str(TRIED_TORCH))
        return Torch(version, True, True, claimed=plain.answer["claimed"], tried=tried)
    error = plain.answer.get("error") or plain.output
    if shadow := _shadow():
        return Torch(installed, reason=reason, error=error, shadow=shadow)
    if not autoload_on():
        return Torch(installed, reason=reason, error=error)
    works, culprit = _culprit(seconds)
    points = importlib.metadata.entry_points(group=TORCH_GROUP, name=culprit)
    package, version = next(map(declaring_package, points), ("", ""))
    return Torch(installed, False, works, reason, culprit, package, version, error=error)


def _shadow() -> str:
    """Return what `import torch` finds in place of PyTorch, such as a folder left in the working directory."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return ""
    if spec.origin is None:  # a folder without __init__.py
        return next(iter(spec.submodule_search_locations or ()), "")
    place = Path(spec.origin)
    place = place.parent if place.name == "__init__.py" else place
    return str(place) if place.parent == Path.cwd() else ""


def _culprit(seconds: float) -> tuple[bool, str]:
    """Return whether torch can be imported without extensions, and the first extension whose call fails."""
    with closing(Worker(*CHILD, **{AUTOLOAD: "0"})) as worker:
        if not worker.ask(seconds, "import_torch").answer.get("version"):
            return False, ""
        for point in importlib.metadata.entry_points(group=TORCH_GROUP):
            reply = worker.ask(seconds, "call_extension", point.name)
            if reply.failure or reply.answer["reason"]:
                return True, point.name
        return True, ""


#: Factor of the time limit for steps that import torch, which reads many files from a cold disk.
SLOW_STEP_FACTOR = 6


class Children:
    """Confirms candidates and constructs accelerators in child processes, and keeps the results.

    seconds: time limit of a runtime.
    worker:  the child that has imported torch; None if that failed.
    claimed: the backend that holds PrivateUse1 in that child.
    """

    def __init__(self, seconds: float, worker: Worker | None, claimed: str) -> None:
        self._seconds = seconds
        self._environment = {} if worker else {AUTOLOAD: "0"}
        self._worker = worker
        self._claimed = claimed
        self.answers: dict[str, Candidate] = {}
        #: Labels of candidates that hang, kill or interrupt their process.
        self.stuck: set[str] = set()
        #: How the first process that took the steps of the run ended; empty while it runs.
        self.failure = ""
        #: `module:Class` of the accelerator that was constructed.
        self.accelerator = ""

    def confirm(self, candidate: Candidate) -> tuple[Candidate, str]:
        """Return the confirmed candidate, and the backend that holds PrivateUse1 after this step."""
        reply = self._ask(self._seconds, "confirm", candidate)
        answer = self._read(candidate, reply, "its runtime")
        self._claimed = self._claimed or reply.answer.get("claimed", "")
        self.answers[candidate.label] = answer
        return answer, self._claimed

    def build(self, candidate: Candidate) -> Candidate | str:
        """Return the key if the accelerator can be constructed, else the candidate with the reason."""
        reply = self._ask(self._seconds * SLOW_STEP_FACTOR, "construct", candidate)
        answer = self._read(candidate, reply, "its accelerator cannot be constructed: its process")
        if answer.state is State.BROKEN:
            return answer
        self.accelerator = reply.answer["accelerator"]
        return candidate.key

    def alone(self, candidate: Candidate) -> Candidate:
        """Return the candidate, confirmed in a process that imports no other runtime."""
        environment = dict(self._environment)
        if candidate.privateuse1 and self._claimed not in ("", candidate.privateuse1):
            # A backend that torch loads by itself would hold PrivateUse1.
            environment[AUTOLOAD] = "0"
        with closing(Worker(*CHILD, **environment)) as worker:
            reply = worker.ask(self._seconds, "confirm", candidate)
            return self._read(candidate, reply, "its runtime")

    def close(self) -> None:
        """End the current child."""
        if self._worker is not None:
            self._worker.close()

    def _ask(self, seconds: float, step: str, candidate: Candidate) -> Reply:
        worker = self._worker or Worker(*CHILD, **self._environment)
        reply = worker.ask(seconds, step, candidate)
        self._worker = None if reply.failure else worker
        ended = reply.failure or reply.answer.get("interrupted", "")
        if ended:
            self.failure = self.failure or f"{candidate.label}: its process {ended}"
        return reply

    def _read(self, candidate: Candidate, reply: Reply, part: str) -> Candidate:
        answer = reply.answer
        if interrupted := answer.get("interrupted"):
            self.stuck.add(candidate.label)
            return candidate.now(State.BROKEN, f"{part} raises {interrupted}, which ends the program")
        if reply.failure:
            self.stuck.add(candidate.label)
            return replace(
                candidate, state=State.BROKEN, reason=f"{part} {reply.failure}", error=reply.output
            )
        confirmed: Candidate = answer["candidate"]
        return confirmed


@dataclass(frozen=True)
class Outcome:
    """The accelerator of a program (`module:Class`), or the error with which it ends, in one line."""

    accelerator: str = ""
    error: str = ""


def needs_a_run(bridge: Bridge, deepspeed: DeepSpeedInfo) -> bool:
    """Return whether the outcome of deepspeed is known only after importing it."""
    return bool(deepspeed.version) and not (bridge.on and deepspeed.tried)


def _of_core(torch: Torch, selection: Selection, children: Children) -> Outcome:
    """Return the outcome of `accel_core.get_accelerator()` in a fresh process."""
    if torch.version and not torch.imports:
        return Outcome(error=f"`import torch`: {torch.reason}")
    if children.failure:
        return Outcome(error=children.failure)
    if selection.decision.error is not None:
        return Outcome(error=str(selection.decision.error).partition("\n")[0])
    return Outcome(children.accelerator)


def _of_deepspeed(torch: Torch, deepspeed: DeepSpeedInfo, core: Outcome) -> Outcome:
    """Return the outcome of deepspeed's `get_accelerator()` if no run is needed to know it."""
    for module, version in (("torch", torch.version), ("deepspeed", deepspeed.version)):
        if not version:
            return Outcome(error=f"ModuleNotFoundError: No module named {module!r}")
    return core


def run_program(seconds: float) -> Outcome:
    """Return the outcome of a child that imports torch and deepspeed, and accel_core only through torch."""
    source = Path(program.__file__).read_text(encoding="utf-8")
    with closing(Worker("-c", source)) as worker:
        reply = worker.receive(seconds)
    if reply.failure:
        return Outcome(error=f"its process {reply.failure}")
    return Outcome(reply.answer["accelerator"], reply.answer["error"])


@dataclass(frozen=True)
class RankPlace:
    """Place of a run among ranks: variables, or those that may be a rank, or why the rank is unknown."""

    variables: str = ""
    unknown: tuple[str, ...] = ()
    error: AccelError | None = None


def place() -> RankPlace:
    """Return what `init_distributed` would find out about the rank of a process with this environment."""
    try:
        found = ranks.derived()
    except AccelError as error:
        return RankPlace(error=error)
    if found is None:
        return RankPlace(unknown=tuple(launchers.rank_like()))
    named = {name: os.environ.get(name) or found.get(name, "") for name in ranks.REQUIRED}
    return RankPlace(", ".join(f"{name}={value}" for name, value in named.items() if value))


@dataclass(frozen=True)
class Facts:
    """Everything that was found in the environment.

    explanation: the accelerator that a run would choose; its candidates include the results of the children.
    selection:   the selection that it explains.
    stuck:       labels of candidates that hang, kill or interrupt their process.
    outcomes:    what `get_accelerator()` of `accel_core` and of `deepspeed` returns.
    speedups:    which methods of DeepSpeed are replaced; empty without deepspeed or bridge.
    locks:       lock files left by killed builds of torch extensions.
    place:       the rank.
    """

    python: dict[str, str]
    core: str
    torch: Torch
    deepspeed: DeepSpeedInfo
    bridge: Bridge
    unmet: tuple[Unmet, ...]
    selection: Selection
    explanation: Explanation
    stuck: frozenset[str] = frozenset()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    speedups: tuple[Status, ...] = ()
    locks: tuple[Path, ...] = ()
    place: RankPlace = RankPlace()


def examine(seconds: float) -> Facts:
    """Return the facts about a fresh process with this environment. Imports neither torch nor deepspeed."""
    deepspeed, bridge, slow_step = installed_deepspeed(), bridge_state(), seconds * SLOW_STEP_FACTOR
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        tried = pool.submit(run_program, slow_step) if needs_a_run(bridge, deepspeed) else None
        worker = Worker(*CHILD) if module_exists("torch") else None
        if worker is not None:
            worker.send("import_torch")  # it imports torch while the candidates are found here
        with redirect_stdout(sys.stderr):  # output of a vendor's module must not get into the JSON
            candidates = CandidateSet(StockDeepSpeed())
        torch = Torch(reason="it is not installed")
        if worker is not None:
            torch = examine_torch(worker.receive(slow_step), slow_step)
            if not torch.imports:
                worker.close()
        children = Children(seconds, worker if torch.imports else None, torch.claimed)
        try:
            selection = _select(candidates, children, torch.claimed)
        finally:
            children.close()
        core = _of_core(torch, selection, children)
        completed = _completed(selection, children, pool)
        return Facts(
            python={
                "version": platform.python_version(),
                "executable": sys.executable,
                "platform": platform.platform(),
            },
            core=__version__,
            torch=torch,
            deepspeed=deepspeed,
            bridge=bridge,
            unmet=tuple(unmet_requirements()),
            selection=selection,
            explanation=replace(explained(selection), candidates=completed),
            stuck=frozenset(children.stuck),
            locks=tuple(torch_locks.stale()),
            speedups=patches.examined() if deepspeed.version and bridge.on else (),
            place=place(),
            outcomes={
                "accel_core": core,
                "deepspeed": tried.result() if tried else _of_deepspeed(torch, deepspeed, core),
            },
        )


def _select(candidates: CandidateSet, children: Children, claimed: str) -> Selection:
    try:
        request = request_from_environment(StockDeepSpeed().keys())
    except InvalidEnvironment as error:
        return Selection(Request(), Decision(None, tuple(candidates.all), error=error))
    return run_selection(candidates, replace(request, claimed=claimed), children.confirm, children.build)


def _completed(selection: Selection, children: Children, pool: ThreadPoolExecutor) -> tuple[Candidate, ...]:
    """Return the candidates, with the candidates that the selection did not reach confirmed in parallel."""
    candidates = [_as_reported(candidate, selection.request) for candidate in selection.decision.candidates]
    waiting = [f for f in candidates if _waits(f, selection.request) and f.label not in children.answers]
    answers = dict(children.answers)
    answers |= {f.label: answer for f, answer in zip(waiting, pool.map(children.alone, waiting), strict=True)}
    return tuple(
        _with_answer(candidate, answers[candidate.label])
        if _waits(candidate, selection.request)
        else candidate
        for candidate in candidates
    )


def _as_reported(candidate: Candidate, request: Request) -> Candidate:
    if candidate.key == request.asked or candidate.state in (State.CHOSEN, State.DEFERRED):
        return candidate
    return passed_over(candidate, request)


def _waits(candidate: Candidate, request: Request) -> bool:
    waits = candidate.state in (State.PENDING, State.OUTRANKED, State.BLOCKED, State.DEFERRED)
    return waits and candidate.devices is None and candidate.key not in request.skip


def _with_answer(candidate: Candidate, answer: Candidate) -> Candidate:
    if candidate.state is State.PENDING or (
        candidate.state is State.OUTRANKED and answer.state is not State.PRESENT
    ):
        return answer
    if candidate.state is State.BLOCKED:
        return replace(candidate, devices=answer.devices)
    return replace(candidate, devices=answer.devices, reason=f"{candidate.reason}; {answer.reason}")


def import_torch() -> dict[str, Any]:
    """Import torch; returns its version and the backend that holds PrivateUse1 afterwards, or the error."""
    try:
        module = importlib.import_module("torch")
        version = str(module.__version__)
        return {"version": version, "claimed": privateuse1_holder(), "reason": "", "error": ""}
    except BaseException as error:
        return {"version": "", "claimed": "", **_described(error)}


def call_extension(name: str) -> dict[str, Any]:
    """Call one of torch's backend extensions as torch does; returns the error, if any."""
    try:
        (point, *_) = importlib.metadata.entry_points(group=TORCH_GROUP, name=name)
        point.load()()
        return {"reason": "", "error": ""}
    except BaseException as error:
        return _described(error)


def confirm(candidate: Candidate) -> dict[str, Any]:
    """Confirm one candidate: import its runtime and count devices."""
    try:
        return _answer(_candidates().confirm(candidate))
    except KeyboardInterrupt as error:
        return {"interrupted": _described(error)["reason"]}


def construct(candidate: Candidate) -> dict[str, Any]:
    """Construct the accelerator with the code of a run under DS_ACCELERATOR=key."""
    os.environ[env.DS_ACCELERATOR.name] = candidate.key
    api.set_accelerator(None)
    try:
        cls = type(api.get_accelerator())
    except KeyboardInterrupt as error:
        return {"interrupted": _described(error)["reason"]}
    except AccelError as error:
        return _answer(_broken(candidate, str(error), error.message))
    _, selection = api.CURRENT.state()
    chosen = selection.decision.candidate if selection else None
    if chosen and chosen.replaces and not candidate.replaces:
        return _answer(_broken(candidate, "", "its accelerator cannot be constructed"))
    return {**_answer(candidate.now(State.CHOSEN)), "accelerator": f"{cls.__module__}:{cls.__qualname__}"}


@functools.cache
def _candidates() -> CandidateSet:
    return CandidateSet(api.CURRENT.deepspeed)


def _broken(candidate: Candidate, error: str, reason: str) -> Candidate:
    _, selection = api.CURRENT.state()
    same = (candidate.key, candidate.variant, candidate.upstream, State.BROKEN)
    for other in selection.decision.candidates if selection else ():
        if (other.key, other.variant, other.upstream, other.state) == same:
            return other
    return replace(candidate, state=State.BROKEN, reason=reason, error=error)


def _answer(candidate: Candidate) -> dict[str, Any]:
    return {"candidate": candidate, "claimed": privateuse1_holder()}


def _described(error: BaseException) -> dict[str, Any]:
    # torch wraps the exception of an extension; the cause is more specific.
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    first = str(root).strip().partition("\n")[0]
    reason = f"{type(root).__name__}: {first}" if first else type(root).__name__
    return {"reason": reason, "error": "".join(traceback.format_exception(error))}


def main() -> None:
    """Take the steps that the doctor requests, in its child process."""
    serve({step.__name__: step for step in (import_torch, call_extension, confirm, construct)})
