# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages that programs make say what the code and the results say."""

import json
import os
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import accel_sim
from accel_core.op_builder import Implementation
from accel_core.upstream.contract import SUPPORTED, TRIED, TRIED_TORCH
from accel_core.vendor import INTERFACE_VERSION
from ci import conformance, device_calls, feature_matrix, pages, workspace

from .conftest import ROOT, Repository
from .conftest import run as run_here

SIMULATED = ("cuda", "hpu", "klxpu", "mlu", "mps", "npu", "sdaa", "supa", "xpu")


def run(check: str, outcome: str = "passed", trait: str = "") -> conformance.Results:
    """Results of one check as the testkit writes them."""
    versions = {"python": "3.11.7", "torch": "2.13.0+cpu", "deepspeed": "0.19.8"}
    row = {"id": check, "outcome": outcome, "trait": trait, "reason": "it has none"}
    document = {"key": "npu", "accelerator": "accel_npu:NPU", "simulated": True, "traits": {}}
    return conformance.condense([document | {"versions": versions, "checks": [row]}])


@pytest.mark.parametrize(
    ("kept", "now", "differ"),
    [
        (run("math.adds_up"), run("math.adds_up"), ""),
        (run("math.adds_up"), run("engine.trains[fp32-stage-0]"), "not kept, now passed"),
        (run("math.adds_up"), run("math.adds_up", "failed"), "suite math.adds_up: passed, now failed"),
        (run("math.adds_up"), run("math.replays"), "suite math.adds_up: passed, now not run"),
        # A type that the machine has or lacks is not a difference.
        (run("math.adds_up", "skipped", "fp16"), run("math.adds_up"), ""),
        (run("math.adds_up"), run("math.adds_up", "skipped", "fp16"), ""),
        (run("math.adds_up", "skipped", "graphs"), run("math.adds_up"), "graphs, now passed"),
    ],
)
def test_other_results_are_an_error(
    repository: Repository, kept: conformance.Results, now: conformance.Results, differ: str
) -> None:
    conformance.record(repository.root, kept)
    found = "".join(map(str, conformance.differences(repository.root, now)))
    assert differ in found if differ else found == ""


def test_the_pages_are_what_the_results_and_the_op_tables_show() -> None:
    kept = conformance.load(ROOT)
    assert {"cpu", "npu"} <= {result.key for result in kept}
    stale = [str(file) for file, text in feature_matrix.written(ROOT) if file.read_text("utf-8") != text]
    assert stale == [], "python -m ci.feature_matrix write"
    checks = {f"{file}.{check}" for file, found in feature_matrix.checklist(ROOT).items() for check in found}
    for result in kept:
        assert {name.partition("[")[0] for name in result.checks} <= checks, result.key


#: How the reason of a loaded builder begins, by implementation.
_BEGINS = {
    Implementation.IMAGE: "image",
    Implementation.SPIRV: "spir-v",
    Implementation.TORCH_FUSED: "torch._fused",
    Implementation.VENDOR_OP: "torch.ops",
    Implementation.PLAIN: "plain torch",
}


@pytest.mark.slow
@pytest.mark.parametrize("key", SIMULATED)
def test_loaded_ops_take_an_implementation_that_they_name(key: str) -> None:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_S", "DS_ACC"))}
    command = (sys.executable, "-m", "accel_core.cli", "ops", "build", "--json")
    done = run_here(*command, env=accel_sim.environment(key, base=base))
    rows = [row for row in json.loads(done.stdout)["ops"] if row["state"] == "ok"]
    assert rows
    for row in rows:
        named = feature_matrix.implemented(key, row["builder"]).split(", ")
        reason = row["reason"].removeprefix("loaded; ").lower()
        taken = {each.value for each, begins in _BEGINS.items() if reason.startswith(begins)}
        assert taken <= {*named}, row


# ------------------------------------------------------------------------------------------- the matrix of evidence


@pytest.mark.upstream
def test_device_calls_have_decisions() -> None:
    if metadata.version("deepspeed") != "0.19.8":
        pytest.skip("the decisions are on deepspeed 0.19.8")
    problems, rows = device_calls.decided(device_calls.sources())
    assert problems == []
    assert pages.page("device-calls", rows=rows) == device_calls.PAGE.read_text(encoding="utf-8")


def test_call_without_a_decision_is_reported(tmp_path: Path) -> None:
    source = (
        "def f(x):\n    y = x.cuda()\n    return torch.random.fork_rng(), torch.randn(2, pin_memory=True)\n"
    )
    (tmp_path / "new.py").write_text(source)
    found = device_calls.calls(tmp_path)
    texts = {"x.cuda()", "torch.random.fork_rng", "torch.randn(pin_memory=…)"}
    assert set(found) == {("new.py:f", text) for text in texts}
    problems, _ = device_calls.decided({"new": found})
    assert {f"no decision: new: new.py:f: {text}" for text in texts} <= {*map(str, problems)}


# --- the page of versions is what the packages require and what accel-core does with interface numbers

VERSIONS_PAGE = (ROOT / "docs/versions.md").read_text(encoding="utf-8")


def test_supported_versions_are_those_of_core() -> None:
    rows = (
        line.strip("| ").split(" | ") for line in VERSIONS_PAGE.partition("\n## What was run")[0].splitlines()
    )
    stated = {name: values for name, *values in rows}
    assert stated["torch"][1] == TRIED_TORCH
    assert stated["DeepSpeed"][:2] == [SUPPORTED, TRIED]


def test_a_vendor_package_of_this_interface_requires_what_the_page_says() -> None:
    shown = dict(re.findall(r"^\| (\d+)(?: \(to come\))? \| .+ \| `(.+)` \|$", VERSIONS_PAGE, re.MULTILINE))
    wanted = Requirement(shown[str(INTERFACE_VERSION)])
    vendors = [package for package in workspace.load(ROOT).values() if package.vendors]
    assert len(vendors) == 10
    assert [package.name for package in vendors if wanted not in package.requires] == []
