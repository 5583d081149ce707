# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The probe: what selection learns about the vendor, before and after its runtime is imported, in any environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Confirmation, Evidence, Vendor
from accel_testkit.suite.expect import Holds, outcome
from accel_testkit.suite.launch import fresh_processes
from accel_testkit.suite.target import VARIABLE, records, variables

pytestmark = [pytest.mark.tier("host"), pytest.mark.record]

_ASSIGNED = re.compile(rf"\b({VARIABLE})=(\S+)")
_UNSET = re.compile(rf"\b({VARIABLE}) is not set\b")
_NO_FOLDER = re.compile(r"=(\S+) is (?:not a|no) folder\b")
_OBJECT = re.compile(r"<(?:class|function|\S+ object)\b[^>]*")
#: Lists of devices for one rank; a runtime may take some of them only.
_LISTS: tuple[list[int | str], ...] = ([0], [0, 1], ["0", "1"], [1, 0], ["x"], [0, "y"])


def _is_sentence(text: object) -> bool:
    """True if `accel doctor` can print it: one line of more than one word."""
    return isinstance(text, str) and len(text.split()) > 1 and "\n" not in text


def test_evidence_is_evidence(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`evidence()` gives an Evidence: runtime is a bool, hardware a bool or None, and the reason one line to read.

    Asked twice on the same machine, it answers the same. It changes no variable and prints nothing: another vendor
    may be chosen after it. Without any device file or driver it answers, and does not raise.
    """
    before = dict(os.environ)
    evidence, again = vendor.evidence(), vendor.evidence()
    changed = sorted(name for name, _ in set(before.items()) ^ set(os.environ.items()))
    holds = Holds({f"the answer is an Evidence: {evidence!r}": type(evidence) is Evidence})
    holds.expect("evidence()", "return accel_core.Evidence(...)")
    holds[f"runtime is a bool: {evidence.runtime!r}"] = type(evidence.runtime) is bool
    holds[f"hardware is a bool or None: {evidence.hardware!r}"] = type(evidence.hardware) in (
        bool,
        type(None),
    )
    holds[f"the reason is a sentence: {evidence.reason!r}"] = _is_sentence(evidence.reason)
    holds.equal("evidence() asked again", again, evidence)
    holds.equal("what it printed", "".join(capfd.readouterr()), "")
    holds.equal("variables that changed", changed, [])
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    bare = outcome(vendor.evidence)
    holds[f"Evidence on a bare machine: {bare!r}"] = isinstance(bare, Evidence)
    do = "derive it from files and metadata alone; say in the reason what was looked for and what was found"
    holds.expect("evidence()", do)


@pytest.fixture(scope="module")
def bare(
    vendor: Vendor, run_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Results of the probes without torch; see `bare` of accel_testkit.suite.fresh_process."""
    folder = tmp_path_factory.mktemp("bare")
    return fresh_processes("bare", records(vendor), {"bare": run_environment}, folder)["bare"]


def test_evidence_without_torch_is_no_runtime(bare: dict[str, Any]) -> None:
    """Where torch is not installed `evidence()` finds no runtime, says so in a sentence, and imports nothing.

    It finds the devices that do not depend on torch; there is always a CPU.
    """
    holds = Holds()
    holds[f"it answers: {bare.get('error')}"] = not bare.get("error")
    holds[f"runtime is False: {bare.get('runtime')}"] = bare.get("runtime") and not any(bare["runtime"])
    for reason in bare.get("reasons", ()):
        holds[f"the reason is a sentence: {reason!r}"] = _is_sentence(reason)
    for key, hardware in zip(bare.get("keys", ()), bare.get("hardware", ()), strict=True):
        right = (True,) if key == "cpu" else (True, False, None)
        holds[f"hardware of {key}: {hardware!r}"] = hardware in right
    do = "look for torch with accel_core.vendor.module_exists; import nothing"
    holds.expect("evidence() without torch", do)


@pytest.mark.tier("device")
def test_confirmation_counts_the_devices(vendor: Vendor, accelerator: DeepSpeedAccelerator) -> None:
    """`confirm()` counts as many devices as `device_count()`, and its reason is one line that a user can read.

    Where a device can be used, `evidence()` finds the runtime and does not deny the hardware.
    """
    evidence, confirmation, holds = vendor.evidence(), vendor.confirm(), Holds()
    holds[f"evidence() sees the device: {evidence}"] = evidence.runtime and evidence.hardware is not False
    holds[f"the answer is a Confirmation: {confirmation!r}"] = type(confirmation) is Confirmation
    holds.equal("devices, as device_count()", confirmation.devices, accelerator.device_count())
    holds[f"the reason is a sentence: {confirmation.reason!r}"] = _is_sentence(confirmation.reason)
    do = "count as device_count() does; look for the module that the class imports, and for each device file"
    holds.expect("confirm() and evidence()", do)


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
    holds = Holds()
    for name in variables(vendor):
        for value in (None, "", str(tmp_path), str(tmp_path / "missing"), "1,0", "x"):
            with monkeypatch.context() as changed:
                if value is None:
                    changed.delenv(name, raising=False)
                else:
                    changed.setenv(name, value)
                evidence = vendor.evidence()
                whole = isinstance(evidence, Evidence) and evidence.reason.strip()
                wrong = [*_untrue(evidence.reason)] if whole else ["there is no reason"]
                holds[f"{name}={value}: {evidence}, but {wrong}"] = not wrong
    holds.expect("evidence()", "read the variables when evidence() is called, and write what was found")


@pytest.mark.tier("device")
@pytest.mark.needs("visible_devices")
def test_confirmation_tells_of_lists_that_are_refused(
    vendor: Vendor, accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of devices that `set_visible_devices_envs` refuses is named by `confirm()`, and no other is."""
    names, refused, count = accelerator.visible_devices_envs(), dict[str, bool](), accelerator.device_count()
    for ids in _LISTS:
        refused[value := ",".join(map(str, ids))] = True
        with suppress(AccelError):
            accelerator.set_visible_devices_envs({}, ids)
            refused[value] = False
    if not any(refused.values()):
        pytest.skip("this runtime takes any list")
    holds, accepted = Holds(), set()
    for value, wrong in {**refused, "": False}.items():
        for name in names:
            monkeypatch.setenv(name, value)
        if not wrong and value.count(",") >= count:
            continue  # more devices than there are, which confirm() may name or not
        reason = vendor.confirm().reason
        accepted |= set() if wrong else {reason}
        holds[f"{value!r}: {reason}"] = any(name in reason for name in names) == wrong
        holds[f"{value!r}: what {reason!r} says is so"] = not [*_untrue(reason)]
    holds[f"one reason for lists that are not refused: {accepted}"] = len(accepted) == 1
    holds.expect("confirm() with lists of devices", "say in the reason what the runtime will not take")
