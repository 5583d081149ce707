# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The package: how core finds it, what installing and loading it brings along, and the sources of its kernels."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from accel_core.devices import CPU_KEY, DEVICES
from accel_core.interface import DeepSpeedAccelerator
from accel_core.selection.candidates import discover
from accel_core.vendor import ENTRY_POINT_GROUP, Traits, Vendor
from accel_testkit.suite import op_builders
from accel_testkit.suite.expect import Holds, expect_equal
from accel_testkit.suite.launch import fresh_processes
from accel_testkit.suite.target import VARIABLE, Target, records, variables

pytestmark = pytest.mark.tier("host")

Report = dict[str, dict[str, Any]]
_BEFORE_CHOICE = ("package", "record", "evidence")
_AFTER_CHOICE = ("class", "construction")
_STEPS = (*_BEFORE_CHOICE, *_AFTER_CHOICE)
_TEXT = {".py", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".mm", ".metal", ".sycl", ".txt", ".toml"}
#: Split so that this file does not hold what it looks for.
_NATIVE = "-march=" + "native"


@pytest.fixture
def requirements(vendor: Vendor) -> list[Requirement]:
    """Distributions installed with the package, extras left out."""
    lines = importlib.metadata.requires(vendor.distribution) or []
    return [item for item in map(Requirement, lines) if "extra" not in str(item.marker or "")]


@pytest.mark.record
def test_core_finds_it(vendor: Vendor) -> None:
    """The distribution declares an entry point `key = "package.vendor:VENDOR"`; core has no complaint about any of it.

    No other vendor has its priority, and the record's version, if there is one, is the one that was installed.
    """
    holds, distribution = Holds(), importlib.metadata.distribution(vendor.distribution)
    names = [point.name for point in distribution.entry_points if point.group == ENTRY_POINT_GROUP]
    holds[f"an entry point {vendor.key} in {ENTRY_POINT_GROUP}: {names}"] = vendor.key in names
    found = discover()
    complaints = [item.reason for item in found.broken if vendor.distribution in item.package]
    holds[f"core has no complaint: {'; '.join(complaints)}"] = not complaints
    equals = [v.label for v in found.vendors if v.priority == vendor.priority and v.key != vendor.key]
    holds[f"the priority {vendor.priority} is not that of {equals}"] = not equals
    versions = {record.version for record in records(vendor).values()}
    holds[f"version {versions} of the record is {distribution.version}"] = versions <= {
        "",
        distribution.version,
    }
    holds.expect(vendor.distribution, "follow each complaint; docs/errors.md explains its code")


@pytest.mark.record
def test_requirements_are_ranges(requirements: list[Requirement], vendor: Vendor) -> None:
    """The package requires a range of accel-core, pins no torch, and forces no runtime.

    The runtime comes from the vendor, for one torch at a time: evidence() checks the installed version.
    """
    holds = Holds()
    named = {str(canonicalize_name(item.name)) for item in requirements}
    bounds = _bounds(requirements, "accel-core")
    holds[f"accel-core {bounds} has a lower and an upper bound"] = bounds.keys() == {">=", "<"}
    holds["torch is not pinned"] = not {"==", "==="} & _bounds(requirements, "torch").keys()
    words = re.findall(r"[\w-]+(?:\.[\w-]+)*", vendor.requires)
    forced = named & {*map(canonicalize_name, words)} - {"torch"}
    holds[f"no requirement of the runtime: {forced}"] = not forced
    do = "write ranges: torch>=2.8, without a cap"
    holds.expect(f"[project] dependencies of {vendor.distribution}", do)


def _bounds(requirements: list[Requirement], name: str) -> dict[str, Version]:
    clauses = [
        clause for item in requirements if canonicalize_name(item.name) == name for clause in item.specifier
    ]
    return {clause.operator: Version(clause.version.removesuffix(".*")) for clause in clauses}


@pytest.fixture(scope="module")
def report(
    target: Target, vendor: Vendor, tmp_path_factory: pytest.TempPathFactory, run_environment: dict[str, str]
) -> Report:
    """Modules that each step of loading the vendor imports; see `trace` of accel_testkit.suite.fresh_process."""
    arguments, folder = [target.package, *records(vendor)], tmp_path_factory.mktemp("package")
    report = fresh_processes("trace", arguments, {"report": run_environment}, folder)["report"]
    if "error" in report:
        pytest.fail(f"the fresh process died while it loaded the vendor:\n{report['error']}", pytrace=False)
    return report


def _runtimes(vendor: Vendor) -> set[str]:
    return set(re.findall(r"\w+", vendor.requires))


@pytest.mark.record
@pytest.mark.parametrize("step", _STEPS)
def test_step_of_loading_does_its_work_only(report: Report, vendor: Vendor, step: str) -> None:
    """Each step works where nothing else has imported the runtime, prints nothing, and leaves the process as it was.

    Importing the package, loading the record and asking for evidence import no torch, deepspeed or runtime. The class
    needs no deepspeed, whose import would ask for this very accelerator. Signal handlers, the start method of
    processes and the root logger stay; construction also leaves filters of warnings and functions of torch alone,
    unless it imports the runtime.
    """
    found, holds = report[step], Holds()
    modules = set(found["modules"])
    heavy = {"torch", "deepspeed", *_runtimes(vendor)} if step in _BEFORE_CHOICE else {"deepspeed"}
    if step in _AFTER_CHOICE and vendor.imports_deepspeed:
        heavy = set()
    changed = list(found["process"])
    if step == "construction" and not _runtimes(vendor) & modules:
        changed += found["shared"]
    if step == "package":
        joins = vendor.imports_deepspeed or "accel_core" in modules
        holds["it imports accel_core, which joins DeepSpeed: see accel_core.activate.lazy_exports"] = joins
    holds[f"it works: {found['error']}"] = not found["error"]
    holds[f"it imports none of {sorted(heavy & modules)}"] = not heavy & modules
    holds[f"it does not print {found['output']!r}"] = not found["output"]
    holds[f"it leaves {', '.join(changed[:12])}"] = not changed
    do = "import the runtime in accelerator.py and in the body of confirm()"
    holds.expect(f"the step {step!r} of loading", do)


def _steps(trait: str) -> list[Any]:
    needs = pytest.mark.needs(trait)
    return [pytest.param(step, marks=needs if step in _AFTER_CHOICE else ()) for step in _STEPS]


@pytest.mark.record
@pytest.mark.parametrize("step", _steps("untouched_environment"))
def test_environment_stays(report: Report, step: str) -> None:
    """No step sets or removes an environment variable: children inherit them, even after a failed choice."""
    do = "pass settings to the runtime by its functions, or leave them to the user"
    expect_equal(f"which variables the step {step!r} changes", report[step]["environment"], [], do)


@pytest.mark.record
@pytest.mark.parametrize("step", ["class", *_steps("untouched_settings")[-1:]])
def test_settings_of_torch_stay(report: Report, step: str) -> None:
    """Neither importing nor constructing the class changes a setting of torch that holds for the whole process."""
    do = "leave the choice to the user, and document it"
    expect_equal(f"which settings the step {step!r} changes", report[step]["settings"], [], do)


@pytest.mark.record
@pytest.mark.parametrize("kept", ["environment", "settings"])
def test_declared_change_is_made(report: Report, vendor: Vendor, traits: Traits, kept: str) -> None:
    """A vendor that declares that imports change variables or settings changes some: the trait skips checks."""
    trait = f"untouched_{kept}"
    if trait not in traits:
        pytest.skip(f"{trait} is not declared missing")
    changed = [name for step in ("torch", *_AFTER_CHOICE) for name in report[step][kept]]
    named = re.findall(rf"\b{VARIABLE}\b", traits[trait].reason)
    # Of the variables that the reason names, those that the package itself sets, and not its runtime.
    missing = set(variables(vendor)).intersection(named) - set(changed) if kept == "environment" else set()
    what = f"import and construction change {', '.join(sorted(missing)) or kept}"
    holds = Holds({what: changed and not missing})
    holds.expect(f"the trait {trait}", "drop the trait, so that the suite checks that nothing changes")


def test_sources_are_installed(accelerator: DeepSpeedAccelerator, target: Target) -> None:
    """`sources()` of every served op lists files that were installed, absolute or below the package."""
    spec, holds = importlib.util.find_spec("deepspeed"), Holds()
    # DeepSpeed's own builders name sources relative to its ops.
    roots = [
        target.folder,
        *([Path(spec.origin).parent / "ops"] if spec is not None and spec.origin is not None else []),
    ]
    for name, builder in op_builders.served(accelerator).items():
        for source in builder.sources():
            holds[f"{name}: {source}"] = any((root / source).is_file() for root in roots)
    holds.expect("a source of an op", "add it to the wheel, and name it relative to the package")


def test_nothing_is_built_for_one_machine(target: Target) -> None:
    """No source or build asks the compiler for the builder's own CPU: binaries are cached and shipped."""
    texts = [path for path in target.folder.rglob("*") if path.suffix in _TEXT and path.is_file()]
    found = [path.name for path in texts if _NATIVE in path.read_text(encoding="utf-8", errors="replace")]
    do = "name the instruction sets (target_clones, levels), and choose between them at run time"
    expect_equal(f"which kernels are built with {_NATIVE}", found, [], do)


def test_sources_name_no_other_device(accelerator: DeepSpeedAccelerator, target: Target) -> None:
    """The package uses no other device's torch module, such as torch.cuda on an NPU."""
    keys = {device.key for device in DEVICES} - {CPU_KEY, "klxpu", "xpu.external"}
    others = keys - {accelerator.device_name()}
    found = [
        f"{path.relative_to(target.folder)}: torch.{node.attr}"
        for path in target.folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if node.value.id == "torch" and node.attr in others
    ]
    do = f"ask this device's module, torch.{accelerator.device_name()}, or torch.accelerator"
    expect_equal("which modules of other devices the package uses", found, [], do)
