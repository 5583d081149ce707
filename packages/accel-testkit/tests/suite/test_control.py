# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a run of the suite says of a good accelerator, and how runs are chosen, skipped and written down."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from accel_core.op_builder.names import CUDA_ONLY
from accel_core.processes import Child
from accel_testkit.suite.launch import wait_for_ranks

from .conftest import STARTING

SUITE = "accel_testkit.suite"
#: What it skips: what it declares, and what is about ops that it does not have, and all about file I/O.
SKIPPED = {"streams.tensor_remembers_its_streams"} | {
    f"{check}[{name}]"
    for check in ("op_table.compatible_op_loads", "op_runtime.reasons_are_whole")
    for name in (*CUDA_ONLY, "AsyncIOBuilder")
}


def skipped(outcome: Any) -> set[str]:
    """What a run has to skip."""
    return SKIPPED | {check for check in outcome.ids() if check.startswith("op_file_io.")}


@pytest.fixture
def good(run_suite: Any, install_site: Callable[[], None]) -> Any:
    """Runs the suite on the good accelerator."""
    install_site()

    def run(*arguments: str, started: str = "") -> Any:
        return run_suite(SUITE, "--accel", "good", *arguments, started=started)

    return run


@pytest.mark.slow
def test_good_accelerator_passes(good: Any) -> None:
    outcome = good()
    assert outcome.code == 0
    assert not outcome.ids("failed")
    assert {check["id"] for check in outcome.document["checks"] if check["trait"]} == skipped(outcome)
    assert all(check["reason"] for check in outcome.document["checks"] if check["outcome"] == "skipped")
    assert {check["tier"] for check in outcome.document["checks"]} == {"host", "device", "multi"}
    assert [row["id"] for row in outcome.document["checks"] if not row["sentence"].endswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("started", STARTING)
def test_good_accelerator_passes_in_processes(good: Any, started: str) -> None:
    outcome = good(started=started)
    assert outcome.code == 0
    assert {check["trait"] for check in outcome.document["checks"]} == {""}


def test_devices_with_shared_memory_pass(good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = importlib.import_module("accel_good.runtime").Runtime
    alone = runtime.mem_get_info

    def shared(self: Any, index: int | None = None) -> tuple[int, int]:
        (free, total), (other, _) = alone(self, 0), alone(self, 1)
        return free + other - total, total

    monkeypatch.setattr(runtime, "mem_get_info", shared)
    outcome = good("-k", "available_memory")
    assert not outcome.ids("failed")
    assert "device_index.index_chooses_the_device[available_memory]" in outcome.ids("passed")


def test_class_can_be_tested_without_its_package(run_suite: Any, install_site: Callable[[], None]) -> None:
    install_site()
    some = "test_device or test_memory or test_streams or test_package or test_probe"
    outcome = run_suite(SUITE, "--accel-class", "accel_good.accelerator:GOOD_Accelerator", "-k", some)
    assert outcome.code == 0
    assert {"device", "memory", "streams"} <= {check.partition(".")[0] for check in outcome.ids()}
    of_packages = {check for check in outcome.ids() if check.startswith(("package.", "probe."))}
    about = ("nothing_is_built_for_one_machine", "sources_are_installed", "sources_name_no_other_device")
    assert of_packages == {f"package.{check}" for check in about}


@pytest.mark.parametrize("tier", ["host", "device", "multi"])
def test_tier_runs_its_checks_only(good: Any, tier: str) -> None:
    outcome = good("--tier", tier, "-k", "test_identity or test_device or test_memory")
    assert {check["tier"] for check in outcome.document["checks"]} == {tier}
    assert outcome.document["tiers"] == [tier]


def test_absent_device_is_a_failure_and_no_skip(good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel_good.runtime.DEVICES", 0)
    outcome = good("--tier", "device")
    assert outcome.ids("skipped") == skipped(outcome)
    assert outcome.ids("failed") == outcome.ids() - skipped(outcome)


@pytest.mark.slow
def test_second_device_is_asked_for_by_tier_multi_alone(good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel_good.runtime.DEVICES", 1)
    outcome = good("--tier", "device", "--tier", "multi")
    assert outcome.ids("failed") == {c["id"] for c in outcome.document["checks"] if c["tier"] == "multi"}


def test_results_name_what_was_tested_and_what_was_skipped(good: Any) -> None:
    document = good("--tier", "device", "-k", "test_streams").document
    assert document["schema"] == 1
    assert document["accelerator"] == "accel_good.accelerator:GOOD_Accelerator"
    assert document["key"] == "good"
    assert document["versions"]["accel-good"] == "1.0"
    assert document["versions"]["torch"]
    assert document["notes"] == []
    (row,) = [c for c in document["checks"] if c["id"] == "streams.tensor_remembers_its_streams"]
    assert (row["outcome"], row["trait"]) == ("skipped", "record_stream")
    assert "unsupported: torch records streams" in row["reason"]


def test_failure_has_four_parts(good: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel_good.runtime.Runtime.current_device", lambda self: "0")
    checks = good("--tier", "device", "-k", "answer_has_its_type").document["checks"]
    (row,) = [c for c in checks if c["id"] == "answers.answer_has_its_type[current_device]"]
    what, *parts = row["reason"].splitlines()
    assert what == "current_device() has the wrong type"
    assert [part.split(":")[0].strip() for part in parts] == ["found", "expected", "do"]


@pytest.mark.parametrize(
    "arguments", [["--accel", "nobody"], ["--accel-class", "a:B", "--accel", "good"], []]
)
def test_unclear_target_is_a_usage_error(run_suite: Any, arguments: list[str]) -> None:
    outcome = run_suite(SUITE, *arguments)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR
    assert not outcome.document


def test_suite_is_not_part_of_other_runs(run_suite: Any) -> None:
    folder = Path(str(find_spec("accel_testkit.suite").origin)).parents[1]  # type: ignore[union-attr]
    assert run_suite(str(folder), "--collect-only").code == pytest.ExitCode.NO_TESTS_COLLECTED


def test_every_check_can_fail_and_is_one(good: Any, variants: dict[str, Any]) -> None:
    checks = _all_ids(good)
    functions = {check.partition("[")[0] for check in checks}
    named = {check for variant in variants.values() for check in variant.fails}
    assert named - checks - functions == {"*"}
    # Those that need device memory fail here of what is broken before they wait.
    unproved = functions - {check.partition("[")[0] for check in named}
    assert unproved == importlib.import_module("broken").NEEDS_DEVICE_MEMORY
    assert len(variants) >= 60


def test_table_of_upstream_mistakes_names_checks_and_tests(good: Any, variants: dict[str, Any]) -> None:
    package = Path(__file__).parents[2]
    table = (package / "UPSTREAM_BUGS.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    answers = {row[1].strip(): row[4].strip() for row in rows}
    assert all(answer.startswith(("`", "not ours: ", "not here: ")) for answer in answers.values())
    named = {row: set(re.findall(r"`(\w+\.\w+)`", answer)) for row, answer in answers.items()}
    assert set().union(*named.values()) - {check.partition("[")[0] for check in _all_ids(good)} == set()
    tests = re.findall(r"`packages/(\S+)::(\w+)`", table)
    assert tests
    for file, function in tests:
        assert f"def {function}(" in (package.parent / file).read_text(encoding="utf-8"), (file, function)
    for row in ("T12", "T26", "T28"):
        fails = {
            c.partition("[")[0] for v in variants.values() if v.name.startswith(f"{row}_") for c in v.fails
        }
        assert named[row] <= fails


def _all_ids(good: Any) -> set[str]:
    runs = (good("--collect-only", started=started) for started in ("", *STARTING))
    return {check for run in runs for check in run.collected}


@pytest.mark.slow
def test_bridge_that_is_off_is_noticed(good: Any, install_site: Callable[[], None]) -> None:
    # In a process of its own: here deepspeed may be joined to accel_core already.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs", SUITE]
    options = ["--accel", "good", "-k", "test_identity"]
    environment = {**os.environ, "ACCEL_BRIDGE": "0", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    assert "test_deepspeed_takes_it_for_its_accelerator" in done.stdout
    assert done.returncode == 1


def test_failed_rank_ends_the_others() -> None:
    programs = "import time; time.sleep(600)", "raise SystemExit(3)"
    waits, failed = ranks = [Child([sys.executable, "-c", program]) for program in programs]
    wait_for_ranks(ranks, float("inf"), lambda: None)
    assert (waits.process.returncode, failed.process.returncode) == (-9, 3)
