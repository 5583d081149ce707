# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages that programs make say what the code and the results say."""

import json
import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import accel_sim
from accel_core.op_builder import Implementation
from accel_core.upstream.contract import SUPPORTED, TRIED, TRIED_TORCH
from accel_core.vendor import INTERFACE_VERSION
from ci import conformance, device_calls, feature_matrix, pages, workspace

from .conftest import HEADER, ROOT, Repository
from .conftest import run as run_here

SIMULATED = ("cuda", "hpu", "mlu", "mps", "npu", "sdaa", "xpu")
CHECKS = """
def test_adds_up(x):
    '''Numbers add up.
    Always.'''


def test_replays(x):
    '''A graph replays.'''
"""


@pytest.fixture
def root(repository: Repository) -> Path:
    """A checkout with a suite of two checks, and pages with places for tables."""
    repository.write("packages/accel-testkit/src/accel_testkit/suite/test_math.py", HEADER + CHECKS)
    for file in (feature_matrix.SHOWN, feature_matrix.TRIED):
        repository.write(file.as_posix(), (ROOT / file).read_text(encoding="utf-8"))
    places = (f"<!-- {name}: generated -->\n\nold\n\n<!-- {name}: end -->" for name in ("packages", "tried"))
    repository.write("docs/versions.md", "# accel\n\n{}\n\n{}\n\nmore\n".format(*places))
    repository.write("docs/results/conformance.md", "")
    return repository.root


def row(name: str, outcome: str = "passed", trait: str = "", **more: Any) -> dict[str, Any]:
    """A check's row as the testkit writes it."""
    reason = "unsupported: it has none" if trait else ""
    known = {"id": name, "tier": "device", "sentence": "", "outcome": outcome, "trait": trait}
    return {**known, "reason": reason, **more}


def run(root: Path, action: str, *rows: dict[str, Any], key: str = "npu", **more: Any) -> int:
    """Run the program on results with these checks."""
    versions = {"python": "3.11.7", "torch": "2.13.0+cpu", "deepspeed": "0.19.8", "accel-npu": "1"}
    document = {"schema": 1, "key": key, "accelerator": "accel_npu:NPU", "simulated": True, "traits": {}}
    document |= {"versions": versions, "checks": rows, **more}
    file = root.parent / f"{key}.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return feature_matrix.main([action, str(file)], root)


def cells(root: Path, start: str) -> list[str]:
    """The cells after the first of the line of the page that starts with this one."""
    lines = (root / "docs/results/conformance.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_cell_says_what_the_run_showed(root: Path) -> None:
    variants = [row("math.adds_up[1]"), row("math.adds_up[2]", "failed"), row("math.adds_up[3]")]
    assert run(root, "record", *variants, row("math.replays", "skipped", "graphs")) == 0
    assert run(root, "record", row("math.adds_up[1]"), key="cpu") == 0
    assert cells(root, "`adds_up`: Numbers add up. Always.") == ["passed", "2 passed, 1 failed"]
    assert cells(root, "`replays`") == ["not run", "no: graphs"]
    assert cells(root, "`graphs`") == ["unsupported: it has none"]


def test_the_engine_s_cell_has_the_worst_figure(root: Path) -> None:
    name = "[fp32-stage-2]"
    figures = [{"difference": 2.4e-7}, {"difference": 1.2e-7}, {"difference": 0.0, "identical": True}]
    rows = [row(f"engine.c{number}{name}", figures=about) for number, about in enumerate(figures)]
    assert run(root, "record", *rows) == 0
    assert cells(root, "fp32 stage 2") == ["2.4e-07, same bits"]
    more = row(f"engine.c9{name}", figures={"difference": 0.0, "identical": False})
    assert run(root, "record", *rows, more) == 0
    assert cells(root, "fp32 stage 2") == ["2.4e-07"]


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        (["passed", "failed"], "**failed**"),
        (["failed", "skipped"], "**failed**"),
        (["skipped", "passed"], "no: fp16"),
    ],
)
def test_the_engine_s_cell_has_the_worst_outcome(root: Path, outcomes: list[str], cell: str) -> None:
    rows = [row(f"engine.c{n}[fp16-stage-1]", o, "fp16" * (o == "skipped")) for n, o in enumerate(outcomes)]
    assert run(root, "record", *rows) == 0
    assert cells(root, "fp16 stage 1") == [cell]


def test_a_run_of_the_engine_leaves_the_suite_s_results(root: Path) -> None:
    assert run(root, "record", row("math.adds_up")) == 0
    assert run(root, "record", row("engine.one_rank[fp32-stage-0]")) == 0
    assert cells(root, "`adds_up`") == ["passed"]
    assert cells(root, "fp32 stage 0") == ["passed"]


def test_variants_are_counted_with_their_reasons(root: Path) -> None:
    skipped = {**row("math.replays[late]", "skipped"), "reason": "there is no second device"}
    assert run(root, "record", row("math.adds_up"), row("math.replays", "skipped", "graphs"), skipped) == 0
    reasons = "graphs, skipped: there is no second device"
    assert cells(root, "`replays`") == [f"1 declared missing, 1 skipped: {reasons}"]
    summary = cells(root, "[npu](conformance/npu.json)")
    assert summary[:3] == ["simulated", "1 passed, 1 declared missing, 1 skipped", "not run"]


def test_table_of_packages_is_renewed_and_text_stays(root: Path) -> None:
    assert run(root, "record", row("math.adds_up")) == 0
    text = (root / "docs/versions.md").read_text()
    link = "[accel-both](../packages/accel-both/README.md)"
    assert f"| {link} | A package | 0.1.0 | accel-core>=0.2,<0.4, accel-cpu>=0.1,<1 |" in text
    assert text.startswith("# accel\n")
    assert text.endswith("end -->\n\nmore\n")
    assert "old" not in text


def test_recording_twice_changes_nothing(root: Path) -> None:
    kept = root / "docs/results/conformance/npu.json"
    rows = [row("math.replays"), row("math.adds_up")]
    assert run(root, "record", *rows) == 0
    before = kept.read_text()
    assert run(root, "record", *reversed(rows)) == 0
    assert kept.read_text() == before


def test_a_run_that_shows_something_else_is_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "record", row("math.adds_up"), row("engine.one_rank[fp32-stage-0]")) == 0
    assert run(root, "compare", row("math.adds_up")) == 0
    assert run(root, "compare", row("math.adds_up", "failed"), row("math.replays")) == 1
    error = capsys.readouterr().err
    assert "suite math.adds_up: passed, now failed; suite math.replays: not kept, now passed" in error
    assert "engine fp32" not in error


@pytest.mark.parametrize(
    ("kept", "now", "status"), [("fp16", "", 0), ("", "fp16", 0), ("graphs", "", 1), ("fp16", "graphs", 1)]
)
def test_a_type_that_the_machine_has_or_lacks_is_no_difference(
    root: Path, kept: str, now: str, status: int
) -> None:
    def outcome(trait: str) -> dict[str, Any]:
        return row("engine.one_rank[fp16-stage-1]", "skipped" if trait else "passed", trait)

    assert run(root, "record", outcome(kept)) == 0
    assert run(root, "compare", outcome(now)) == status


def test_results_of_several_accelerators_are_refused(root: Path) -> None:
    with pytest.raises(SystemExit, match="do not belong together"):
        run(root, "record", row("math.adds_up"), key="")


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


def test_a_cell_of_the_matrix_has_the_worst_that_is_known(root: Path) -> None:
    missing = row("engine.trains[bf16-stage-1]", "skipped", "bf16")
    run(root, "record", row("engine.trains[fp32-stage-1]"), missing)
    page = (root / "docs/matrix.md").read_text(encoding="utf-8")
    assert "| ZeRO 1 | simulated |" in page
    assert "1 of 2 configurations passed; `bf16` unsupported: it has none" in page
    assert "| bf16 | missing |" in page
    assert "| ZeRO 3 | not run |" in page


def test_what_a_vendor_no_longer_declares_is_forgotten(root: Path) -> None:
    run(root, "record", row("device.index"), traits={"streams": "unsupported: none"})
    run(root, "record", row("device.index"), traits={})
    (result,) = conformance.load(root)
    assert result.traits == {}
    assert result.recorded


def test_each_row_of_the_matrix_has_evidence() -> None:
    programs = json.loads((ROOT / "docs/results/programs.json").read_text(encoding="utf-8"))["rows"]
    rows: Mapping[str, Mapping[str, str]] = {each.pop("program"): each for each in programs}
    for shown in workspace.read_toml(ROOT / feature_matrix.SHOWN)["shown"]:
        on = {key for key, word in shown.get("on", {}).items() if word in feature_matrix.WORDS}
        assert on == shown.get("on", {}).keys()
        assert {*shown} & {"engine", "suite", "programs"} or (ROOT / shown["by"]).is_file()
        # The losses of the others are compared with those of the CPU.
        assert all(rows[name].keys() == on - {"cpu"} for name in shown.get("programs", ()))


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


def test_the_page_has_every_option_of_every_command_and_no_other() -> None:
    block = r"^##+ accel ([\w -]+?)(?: \([\w-]+\))?\n\n```text\n(.+?)^```$"
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    shown = dict(re.findall(block, page, re.MULTILINE | re.DOTALL))
    expected = {name: parser for name, _, parser in feature_matrix.parsers()}
    assert shown.keys() == expected.keys(), "python -m ci.feature_matrix write"
    for name, parser in expected.items():
        options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
        listed = set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", shown[name], re.MULTILINE))
        hidden = {o for a in parser._actions for o in a.option_strings if a.help == "==SUPPRESS=="}
        assert listed <= options, name
        missing = {option for option in options - hidden - {"--help"} if option not in shown[name]}
        assert missing == set(), f"{name}: python -m ci.feature_matrix write"


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
    assert len(vendors) == 8
    assert [package.name for package in vendors if wanted not in package.requires] == []


def test_page_without_place_raises() -> None:
    with pytest.raises(ValueError, match="packages: generated"):
        pages.renewed("# page", "packages", "")
