# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In a child process: the steps of a run, each called by a request and returning its result."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import traceback
from dataclasses import replace
from typing import Any

from accel_core import api, env
from accel_core.cli.child import serve
from accel_core.cli.doctor.examine import TORCH_GROUP
from accel_core.errors import AccelError
from accel_core.selection.candidates import Candidate, CandidateSet, State, privateuse1_holder


def torch() -> dict[str, Any]:
    """Import torch; returns its version and the backend that holds PrivateUse1 afterwards, or the error."""
    try:
        module = importlib.import_module("torch")
        return {
            "version": str(module.__version__),
            "claimed": privateuse1_holder(),
            "reason": "",
            "error": "",
        }
    except BaseException as error:
        return {"version": "", "claimed": "", **_described(error)}


def extension(name: str) -> dict[str, Any]:
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
        return _answer(_broken(candidate, str(error), error.what))
    _, selection = api.CURRENT.state()
    chosen = selection.verdict.candidate if selection else None
    if chosen and chosen.replaces and not candidate.replaces:
        return _answer(_broken(candidate, "", "its accelerator cannot be constructed"))
    return {**_answer(candidate.now(State.CHOSEN)), "accelerator": f"{cls.__module__}:{cls.__qualname__}"}


@functools.cache
def _candidates() -> CandidateSet:
    return CandidateSet(api.CURRENT.deepspeed)


def _broken(candidate: Candidate, error: str, reason: str) -> Candidate:
    _, selection = api.CURRENT.state()
    same = (candidate.key, candidate.variant, candidate.upstream, State.BROKEN)
    for other in selection.verdict.candidates if selection else ():
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


if __name__ == "__main__":
    serve({step.__name__: step for step in (torch, extension, confirm, construct)})
