# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Examine this environment: the selection of a run, with runtimes confirmed in child processes."""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import replace

from accel_core.__about__ import __version__
from accel_core.cli import packages
from accel_core.cli.doctor import outcomes, torch_check
from accel_core.cli.doctor.children import SLOW_STEP_FACTOR, Children
from accel_core.cli.doctor.report import Facts
from accel_core.cli.doctor.torch_check import Torch
from accel_core.cli.worker import Worker
from accel_core.errors import InvalidEnvironment
from accel_core.selection.candidates import Candidate, CandidateSet, State
from accel_core.selection.choose import Request, Step, Verdict, passed_over
from accel_core.selection.current import (
    Selection,
    explained,
    request_from_environment,
    run_selection,
)
from accel_core.upstream import speedups
from accel_core.upstream.backends import StockDeepSpeed
from accel_core.vendor import module_exists


def examine(seconds: float) -> Facts:
    """Return the facts about a fresh process with this environment. Imports neither torch nor deepspeed."""
    deepspeed, bridge = packages.deepspeed(), packages.bridge()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        tried = (
            pool.submit(outcomes.run_program, seconds * SLOW_STEP_FACTOR)
            if outcomes.needs_a_run(bridge, deepspeed)
            else None
        )
        worker = _worker()
        with redirect_stdout(sys.stderr):  # output of a vendor's module must not get into the JSON
            candidates = CandidateSet(StockDeepSpeed())
        torch = _torch(worker, seconds * SLOW_STEP_FACTOR)
        children = Children(seconds, worker if torch.imports else None, torch.claimed)
        try:
            selection = _select(candidates, children, torch.claimed)
        finally:
            children.close()
        core = outcomes.of_core(torch, selection, children)
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
            unmet=tuple(packages.unmet()),
            selection=selection,
            explanation=replace(explained(selection), candidates=completed),
            stuck=frozenset(children.stuck),
            speedups=package_patches.examined() if deepspeed.version and bridge.on else (),
            outcomes={
                "accel_core": core,
                "deepspeed": tried.result() if tried else outcomes.of_deepspeed(torch, deepspeed, core),
            },
        )


def _worker() -> Worker | None:
    """Start the child that takes the steps of a run; it begins to import torch. None without torch."""
    if not module_exists("torch"):
        return None
    worker = Worker(torch_check.STEPS)
    worker.send("torch")
    return worker


def _torch(worker: Worker | None, seconds: float) -> Torch:
    if worker is None:
        return Torch(reason="it is not installed")
    torch = torch_check.examine(worker.receive(seconds), seconds)
    if not torch.imports:
        worker.close()
    return torch


def _select(candidates: CandidateSet, children: Children, claimed: str) -> Selection:
    try:
        request = request_from_environment(StockDeepSpeed().keys())
    except InvalidEnvironment as error:
        return Selection(Request(), Verdict(Step.FAIL, None, tuple(candidates.all), error=error))
    return run_selection(candidates, replace(request, claimed=claimed), children.confirm, children.build)


def _completed(selection: Selection, children: Children, pool: ThreadPoolExecutor) -> tuple[Candidate, ...]:
    """Return the candidates, with the candidates that the selection did not reach confirmed in parallel."""
    candidates = [_as_reported(candidate, selection.request) for candidate in selection.verdict.candidates]
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
