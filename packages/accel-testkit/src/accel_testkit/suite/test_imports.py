# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Import cost and order: what loading the vendor brings along, step by step, in a fresh process."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from accel_core.isolated import run_module
from accel_core.vendor import Traits, Vendor
from accel_testkit.suite.expect import expect
from accel_testkit.suite.target import Target, records
from accel_testkit.suite.test_probe_environment import variables

pytestmark = [pytest.mark.tier("host"), pytest.mark.record]

Report = dict[str, dict[str, Any]]
#: Guards against a hang; nothing is measured.
_LIMIT = 300
_BEFORE_CHOICE = ("package", "record", "evidence")
_AFTER_CHOICE = ("class", "construction")
#: A name of an environment variable in a sentence.
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")


@pytest.fixture(scope="module")
def report(
    target: Target, vendor: Vendor, tmp_path_factory: pytest.TempPathFactory, run_environment: dict[str, str]
) -> Report:
    """What each step of loading the vendor brought along; see accel_testkit.suite.import_trace."""
    out = tmp_path_factory.mktemp("imports") / "report.json"
    command = [
        *run_module("accel_testkit.suite.import_trace"),
        str(out),
        target.package,
        *records(vendor),
    ]
    done = subprocess.run(
        command, env=run_environment, capture_output=True, text=True, timeout=_LIMIT, check=False
    )
    return _read(out, done.stderr)


def _read(out: Path, output: str) -> Report:
    if not out.is_file():
        pytest.fail(f"the fresh process died while it loaded the vendor:\n{output[-2000:]}", pytrace=False)
    report: Report = json.loads(out.read_text(encoding="utf-8"))
    return report


@pytest.mark.parametrize("step", _BEFORE_CHOICE)
def test_nothing_heavy_is_imported_before_the_choice(report: Report, vendor: Vendor, step: str) -> None:
    """Importing the package, loading the record and asking for evidence import no torch, deepspeed or runtime."""
    heavy = {"torch", "deepspeed", *re.findall(r"\w+", vendor.requires)}
    found = sorted(heavy.intersection(report[step]["modules"]))
    expect(
        not found,
        f"the step {step!r} imports too much",
        found=", ".join(found),
        expected="none of torch, deepspeed and the runtime: the vendor may not be chosen at all",
        do="import them in accelerator.py, and in the body of confirm()",
    )


@pytest.mark.parametrize("step", [*_BEFORE_CHOICE, *_AFTER_CHOICE])
def test_step_succeeds(report: Report, step: str) -> None:
    """Each step works in a process where nothing else has imported the runtime, torch aside."""
    expect(
        not report[step]["error"],
        f"the step {step!r} fails in a fresh process",
        found=report[step]["error"],
        expected="no exception on a machine that has the runtime",
        do="import what the module uses in that module, and let errors of the import pass",
    )


def test_package_joins_deepspeed(report: Report, vendor: Vendor) -> None:
    """Importing the package is enough to be DeepSpeed's accelerator: it imports accel_core, which joins DeepSpeed.

    torch does so by itself, unless a runtime is imported ahead of torch that switches its autoload off.
    """
    expect(
        vendor.imports_deepspeed or "accel_core" in report["package"]["modules"],
        "importing the package leaves DeepSpeed to choose by itself",
        found="accel_core is not imported",
        expected="accel_core imported by the package itself, which loads nothing else",
        do='`__getattr__ = accel_core.lazy.exports(__name__, {"XYZ_Accelerator": "accelerator"})` in __init__.py',
    )


def test_class_imports_no_deepspeed(report: Report, vendor: Vendor) -> None:
    """The class is imported without deepspeed, whose import would ask for this very accelerator."""
    found = [step for step in _AFTER_CHOICE if "deepspeed" in report[step]["modules"]]
    expect(
        vendor.imports_deepspeed or not found,
        "the accelerator imports deepspeed",
        found=f"in the steps {', '.join(found)}",
        expected="no import, or imports_deepspeed=True in the record",
        do="derive from accel_core's classes",
    )


@pytest.mark.parametrize(
    "step",
    [
        *_BEFORE_CHOICE,
        *(pytest.param(s, marks=pytest.mark.needs("untouched_environment")) for s in _AFTER_CHOICE),
    ],
)
def test_environment_stays(report: Report, step: str) -> None:
    """No step sets or removes an environment variable."""
    expect(
        not report[step]["environment"],
        f"the step {step!r} changes the environment",
        found=", ".join(report[step]["environment"]),
        expected="the same variables as before: children inherit them, even after a failed choice",
        do="pass settings to the runtime by its functions, or leave them to the user",
    )


@pytest.mark.parametrize("step", [*_BEFORE_CHOICE, *_AFTER_CHOICE])
def test_output_stays_clean(report: Report, step: str) -> None:
    """No step writes to standard output: programs parse what other programs print."""
    expect(
        not report[step]["output"],
        f"the step {step!r} writes to standard output",
        found=repr(report[step]["output"]),
        expected="silence",
        do="use the logging module, or warnings",
    )


@pytest.mark.parametrize(
    "step", ["class", pytest.param("construction", marks=pytest.mark.needs("untouched_settings"))]
)
def test_settings_of_torch_stay(report: Report, step: str) -> None:
    """Neither importing nor constructing the class changes a setting of torch that holds for the whole process."""
    changed = report[step]["settings"]
    expect(
        not changed,
        f"the step {step!r} changes settings of torch",
        found=", ".join(changed),
        expected="the settings that the user made",
        do="leave the choice to the user, and document it",
    )


@pytest.mark.parametrize("step", [*_BEFORE_CHOICE, *_AFTER_CHOICE])
def test_process_stays(report: Report, vendor: Vendor, step: str) -> None:
    """No step changes what Python keeps once: signal handlers, the start method of processes, the root logger.

    Construction also leaves filters of warnings and functions of torch alone, unless it imports the runtime.
    """
    changed = report[step]["process"]
    if step == "construction" and not set(re.findall(r"\w+", vendor.requires)) & set(report[step]["modules"]):
        changed = changed + report[step]["shared"]
    expect(
        not changed,
        f"the step {step!r} changes the whole process",
        found=", ".join(changed[:12]),
        expected="what the user's program has set",
        do="keep to the accelerator's own object; what a runtime patches belongs into the runtime's import",
    )


@pytest.mark.parametrize(
    ("trait", "kept"), [("untouched_environment", "environment"), ("untouched_settings", "settings")]
)
def test_declared_change_is_made(
    report: Report, vendor: Vendor, traits: Traits, trait: str, kept: str
) -> None:
    """A vendor that declares that imports change variables or settings changes some: the trait skips checks."""
    changed = [name for step in ("torch", *_AFTER_CHOICE) for name in report[step][kept]]
    reason = traits[trait].reason if trait in traits else ""
    # Of the variables that the reason names, those that the package itself sets, and not its runtime.
    named = set(variables(vendor)).intersection(_VARIABLE.findall(reason))
    missing = sorted(named - set(changed)) if kept == "environment" else []
    expect(
        trait not in traits or (changed and not missing),
        f"the trait {trait} declares a change that nothing makes",
        found=f"in import and construction no change of {' or '.join(missing) or 'anything'}",
        expected=f"a changed {kept.removesuffix('s')}, each that the reason names, or no such trait",
        do="drop the trait, so that the suite checks that nothing changes",
    )
