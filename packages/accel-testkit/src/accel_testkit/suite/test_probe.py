# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The probe: what selection learns about the vendor, before and after its runtime is imported."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_core.isolated import run_module
from accel_core.vendor import Confirmation, Evidence, Vendor
from accel_testkit.suite.expect import expect, expect_type
from accel_testkit.suite.target import records

pytestmark = [pytest.mark.tier("host"), pytest.mark.record]

#: Guards against a hang; nothing is measured.
_LIMIT = 120


def test_evidence_is_evidence(vendor: Vendor) -> None:
    """`evidence()` gives an Evidence: runtime is a bool, hardware a bool or None."""
    evidence = vendor.evidence()
    expect_type(evidence, Evidence, "the answer of evidence()", do="return accel_core.Evidence(...)")
    expect_type(evidence.runtime, bool, "Evidence.runtime", do="answer True or False")
    if evidence.hardware is not None:
        expect_type(
            evidence.hardware, bool, "Evidence.hardware", do="answer True, False, or None for unknown"
        )


def test_evidence_says_why(vendor: Vendor) -> None:
    """`Evidence.reason` is one line that a user can read."""
    _expect_sentence(vendor.evidence().reason, "Evidence.reason")


def test_evidence_stays_the_same(vendor: Vendor) -> None:
    """Asked twice on the same machine, `evidence()` answers the same."""
    first, second = vendor.evidence(), vendor.evidence()
    expect(
        first == second,
        "evidence() changes its answer",
        found=f"{first}, then {second}",
        expected="the same answer while nothing on the machine changes",
        do="derive it from files and metadata alone",
    )


def test_evidence_survives_a_bare_machine(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any device file or driver `evidence()` answers, and does not raise."""
    monkeypatch.setenv("ACCEL_SYSROOT", str(tmp_path))
    expect_type(vendor.evidence(), Evidence, "the answer on a bare machine", do="treat absence as an answer")


@pytest.fixture(scope="module")
def bare(
    vendor: Vendor, run_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the probes find where there is no torch; see accel_testkit.suite.without_torch."""
    out = tmp_path_factory.mktemp("bare") / "evidence.json"
    command = [*run_module("accel_testkit.suite.without_torch"), str(out), *records(vendor)]
    done = subprocess.run(
        command, env=run_environment, capture_output=True, text=True, timeout=_LIMIT, check=False
    )
    if not out.is_file():
        return {"error": done.stderr[-2000:]}
    answers: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return answers


def test_evidence_without_torch_is_no_runtime(bare: dict[str, Any]) -> None:
    """Where torch is not installed `evidence()` finds no runtime, says so in a sentence, and imports nothing."""
    expect(
        not bare.get("error") and bare["runtime"] and not any(bare["runtime"]),
        "evidence() without torch is another than that there is no runtime",
        found=str(bare),
        expected="Evidence(runtime=False, …), and no exception",
        do="look for torch with accel_core.vendor.module_exists, and import nothing",
    )
    for reason in bare["reasons"]:
        _expect_sentence(reason, "Evidence.reason without torch")
    expect(
        all(hardware in (True, False, None) for hardware in bare["hardware"])
        and ("cpu" not in bare["keys"] or all(bare["hardware"])),
        "Evidence.hardware without torch is another",
        found=repr(bare["hardware"]),
        expected="True, False or None, of devices that do not depend on torch; there is always a CPU",
        do="answer it as on a machine with torch",
    )


def test_evidence_leaves_the_environment_alone(vendor: Vendor) -> None:
    """`evidence()` changes no environment variable: another vendor may be chosen after it."""
    before = dict(os.environ)
    vendor.evidence()
    changed = sorted(name for name, _ in set(before.items()) ^ set(os.environ.items()))
    expect(
        not changed,
        "evidence() changes the environment",
        found=", ".join(changed),
        expected="no variable set, changed or removed",
        do="set variables in the accelerator's constructor or not at all",
    )


def test_evidence_prints_nothing(vendor: Vendor, capfd: pytest.CaptureFixture[str]) -> None:
    """`evidence()` writes nothing: every user of any vendor would read it."""
    vendor.evidence()
    written = "".join(capfd.readouterr())
    expect(
        not written,
        "evidence() writes to the terminal",
        found=repr(written),
        expected="silence; what there is to say goes into Evidence.reason",
        do="remove the print, or ask a quieter source",
    )


@pytest.mark.tier("device")
def test_evidence_sees_the_device(vendor: Vendor) -> None:
    """Where a device can be used, `evidence()` finds the runtime and does not deny the hardware."""
    evidence = vendor.evidence()
    expect(
        evidence.runtime and evidence.hardware is not False,
        "evidence() overlooks the device that this run uses",
        found=str(evidence),
        expected="runtime=True and hardware=True or None",
        do="look for the module that the class imports, and for every name of the device files",
    )


@pytest.mark.tier("device")
def test_confirmation_counts_the_devices(vendor: Vendor, accelerator: DeepSpeedAccelerator) -> None:
    """`confirm()` counts as many devices as `device_count()`."""
    confirmation = vendor.confirm()
    expect_type(
        confirmation, Confirmation, "the answer of confirm()", do="return accel_core.Confirmation(...)"
    )
    expect(
        confirmation.devices == accelerator.device_count(),
        "confirm() and device_count() disagree",
        found=f"{confirmation.devices} confirmed, device_count() is {accelerator.device_count()}",
        expected="one number",
        do="ask the same function of the runtime in both",
    )


@pytest.mark.tier("device")
def test_confirmation_says_why(vendor: Vendor) -> None:
    """`Confirmation.reason` is one line that a user can read."""
    _expect_sentence(vendor.confirm().reason, "Confirmation.reason")


def _expect_sentence(text: object, what: str) -> None:
    expect(
        isinstance(text, str) and len(text.split()) > 1 and "\n" not in text,
        f"{what} is no sentence",
        found=repr(text),
        expected="one line of more than one word: `accel doctor` prints it",
        do="say what was looked for and what was found",
    )
