# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The probe's environment: whatever the vendor's variables are, it answers, and what it says of them is so."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Evidence, Vendor
from accel_testkit.suite.expect import expect
from accel_testkit.suite.holds import Holds

pytestmark = [pytest.mark.tier("host"), pytest.mark.record]

_NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_VARIABLE = re.compile(_NAME)
_ASSIGNED = re.compile(rf"\b({_NAME})=(\S+)")
_UNSET = re.compile(rf"\b({_NAME}) is not set\b")
_NO_FOLDER = re.compile(r"=(\S+) is (?:not a|no) folder\b")
_OBJECT = re.compile(r"<(?:class|function|\S+ object)\b[^>]*")
#: Lists of devices for one rank; a runtime may take some of them only.
_LISTS: tuple[list[int | str], ...] = ([0], [0, 1], ["0", "1"], [1, 0], ["x"], [0, "y"])


def variables(vendor: Vendor) -> list[str]:
    """Names in the source of the vendor's package that look like environment variables."""
    spec = importlib.util.find_spec(vendor.accelerator.partition(":")[0].partition(".")[0])
    assert spec is not None
    assert spec.origin is not None
    found: set[str] = set()
    for file in Path(spec.origin).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if _VARIABLE.fullmatch(node.value) else set()
    return sorted(found)


def _untrue(reason: str) -> Iterator[str]:
    """Yield what a reason says of the environment that is not so."""
    yield from (f"{text}> is for programmers" for text in _OBJECT.findall(reason))
    for name, value in _ASSIGNED.findall(reason):
        if os.environ.get(name) != value.rstrip(":;,."):
            yield f"{name} is {os.environ.get(name)!r}"
    yield from (f"{name} is set" for name in _UNSET.findall(reason) if os.environ.get(name))
    yield from (f"{path} is a folder" for path in _NO_FOLDER.findall(reason) if Path(path).is_dir())


def test_evidence_is_true_of_the_environment(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For every variable that the package names, unset, a folder, or nonsense: an answer, that is true of it."""
    problems = []
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in variables(vendor):
        for value in (None, "", str(folder), str(tmp_path / "missing"), "1,0", "x"):
            with monkeypatch.context() as changed:
                if value is None:
                    changed.delenv(name, raising=False)
                else:
                    changed.setenv(name, value)
                evidence = vendor.evidence()
                if not isinstance(evidence, Evidence) or not evidence.reason.strip():
                    problems.append(f"{evidence!r} with {name}={value}")
                problems += [f"{evidence.reason!r}, but {what}" for what in _untrue(evidence.reason)]
    expect(
        not problems,
        "evidence() says what is not so",
        found="; ".join(problems[:4]),
        expected="an Evidence, whose reason is true of the environment variables that it names",
        do="read the variables when evidence() is called, and write what was found",
    )


@pytest.mark.tier("device")
def test_confirmation_tells_of_lists_that_are_refused(
    vendor: Vendor, accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of devices that `set_visible_devices_envs` refuses is named by `confirm()`, and no other is."""
    names, refused = accelerator.visible_devices_envs(), dict[str, bool]()
    for ids in _LISTS:
        try:
            accelerator.set_visible_devices_envs({}, ids)
        except AccelError:
            refused[",".join(map(str, ids))] = True
        else:
            refused[",".join(map(str, ids))] = False
    if not any(refused.values()):
        return  # this runtime takes any list
    holds, accepted = Holds(), set()
    for value, wrong in {**refused, "": False, "0, 1": False}.items():
        for name in names:
            monkeypatch.setenv(name, value)
        reason = vendor.confirm().reason
        accepted |= set() if wrong else {reason}
        holds[f"{value!r}: {reason}"] = any(name in reason for name in names) == wrong
        holds[f"{value!r}: what {reason!r} says is so"] = not [*_untrue(reason)]
    holds[f"one reason for lists that are not refused: {accepted}"] = len(accepted) == 1
    holds.expect("confirm() with lists of devices", "say in the reason what the runtime will not take")
