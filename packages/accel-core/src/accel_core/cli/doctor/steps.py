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
from accel_core.cli.packages import TORCH_GROUP
from accel_core.cli.worker import serve
from accel_core.errors import AccelError
from accel_core.selection.confirm import privateuse1_holder
from accel_core.selection.finding import Finding, State
from accel_core.selection.select import Candidates


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


def confirm(key: str, variant: str, replaces: str) -> dict[str, Any]:
    """Confirm one candidate: import its runtime and count devices. replaces: as in `Finding`."""
    try:
        candidates = _candidates()
        return _answer(candidates.confirm(_find(candidates, key, variant, replaces)))
    except KeyboardInterrupt as error:
        return {"interrupted": _described(error)["reason"]}


def construct(key: str, variant: str, replaces: str) -> dict[str, Any]:
    """Construct the accelerator with the code of a run under DS_ACCELERATOR=key."""
    finding = _find(_candidates(), key, variant, replaces)
    os.environ[env.DS_ACCELERATOR.name] = finding.key
    api.set_accelerator(None)
    try:
        cls = type(api.get_accelerator())
    except KeyboardInterrupt as error:
        return {"interrupted": _described(error)["reason"]}
    except AccelError as error:
        return _answer(_broken(finding, str(error), error.what))
    _, selection = api.CURRENT.state()
    chosen = selection.verdict.finding if selection else None
    if chosen and chosen.replaces and not replaces:
        return _answer(_broken(finding, "", "its accelerator cannot be constructed"))
    return {**_answer(finding.now(State.CHOSEN)), "accelerator": f"{cls.__module__}:{cls.__qualname__}"}


@functools.cache
def _candidates() -> Candidates:
    return Candidates(api.CURRENT.deepspeed)


def _find(candidates: Candidates, key: str, variant: str, replaces: str) -> Finding:
    if replaces:
        return candidates.of_deepspeed(key, variant, replaces)
    # A package that cannot be imported may have the same key.
    able = (finding for finding in candidates.findings if finding.state is not State.BROKEN)
    return next(finding for finding in able if (finding.key, finding.variant) == (key, variant))


def _broken(finding: Finding, error: str, reason: str) -> Finding:
    _, selection = api.CURRENT.state()
    same = (finding.key, finding.variant, finding.upstream, State.BROKEN)
    for other in selection.verdict.findings if selection else ():
        if (other.key, other.variant, other.upstream, other.state) == same:
            return other
    return replace(finding, state=State.BROKEN, reason=reason, error=error)


def _answer(finding: Finding) -> dict[str, Any]:
    return {
        "state": finding.state.value,
        "reason": finding.reason,
        "devices": finding.devices,
        "runtime": finding.runtime,
        "error": finding.error,
        "claimed": privateuse1_holder(),
    }


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
