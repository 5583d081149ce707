# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages that programs make say what the code and the results say."""

from importlib import metadata
from pathlib import Path

import pytest

from ci import conformance, device_calls, feature_matrix, pages

from .conftest import ROOT, Repository

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
