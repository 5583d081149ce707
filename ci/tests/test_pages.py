# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Pages that programs make say what the code and the results say."""

import ast
import json
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import accel_sim
from accel_core.op_builder import Implementation, OpBuilder
from accel_core.vendor import INTERFACE_VERSION, deepspeed_folder
from ci import command_help, device_calls, evidence, feature_matrix, versions, workspace
from ci.evidence import NOT_RUN, Cell
from ci.feature_matrix import Results
from ci.printed import renewed

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
    """A checkout with a suite of two checks, and a page with a place for the table."""
    repository.write("packages/accel-testkit/src/accel_testkit/suite/test_math.py", HEADER + CHECKS)
    repository.package("accel-toy", vendor="toy")
    settings = repository.root / "packages/accel-toy/pyproject.toml"
    settings.write_text(settings.read_text().replace("[project]", '[project]\ndescription = "A toy"', 1))
    repository.write(
        "docs/results/programs.json", '{"rows": [], "circumstances": {"date": "", "commit": ""}}'
    )
    repository.write("ci/evidence.toml", "shown = []\n")
    release = 'release = "0.19.8"\n[builders]\n[faults]\n[earlier]\n'
    repository.write("ci/upstream_ops.toml", release)
    repository.write(
        "docs/vendors/README.md", f"# accel\n\n{feature_matrix.BEGIN}\nold\n{feature_matrix.END}\n\nmore\n"
    )
    return repository.root


def row(name: str, outcome: str = "passed", trait: str = "", **more: Any) -> dict[str, Any]:
    """A check's row as the testkit writes it."""
    reason = "unsupported: it has none" if trait else ""
    known = {"id": name, "tier": "device", "sentence": "", "outcome": outcome, "trait": trait}
    return {**known, "reason": reason, **more}


def run(root: Path, action: str, *rows: dict[str, Any], key: str = "toy", **more: Any) -> int:
    """Run the program on results with these checks."""
    versions = {"python": "3.11.7", "torch": "2.13.0+cpu", "deepspeed": "0.19.8", "accel-toy": "1"}
    document = {"schema": 1, "key": key, "accelerator": "accel_toy:TOY", "simulated": True, "traits": {}}
    document |= {"versions": versions, "checks": rows, **more}
    file = root.parent / f"{key}.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return feature_matrix.main([action, str(file)], root)


def cells(root: Path, start: str) -> list[str]:
    """The cells after the first of the line of the page that starts with this one."""
    lines = (root / feature_matrix.CONFORMANCE).read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_cell_says_what_the_run_showed(root: Path) -> None:
    variants = [row("math.adds_up[1]"), row("math.adds_up[2]", "failed"), row("math.adds_up[3]")]
    assert run(root, "record", *variants, row("math.replays", "skipped", "graphs")) == 0
    assert run(root, "record", row("math.adds_up[1]"), key="other") == 0
    assert cells(root, "`adds_up`: Numbers add up. Always.") == ["passed", "2 of 3 passed; **1 failed**"]
    assert cells(root, "`replays`") == ["not run", "no: graphs"]
    assert cells(root, "`graphs`") == ["unsupported", "it has none"]


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


def test_the_page_of_packages_has_the_summary_and_keeps_its_text(root: Path) -> None:
    skipped = {**row("math.replays[late]", "skipped"), "reason": "there is no second device"}
    assert run(root, "record", row("math.adds_up"), row("math.replays", "skipped", "graphs"), skipped) == 0
    assert cells(root, "`replays`") == ["no: graphs; skipped: there is no second device"]
    text = (root / feature_matrix.PACKAGES).read_text()
    lines = text.splitlines()
    toy = "[accel-toy](../../packages/accel-toy/README.md)"
    assert f"| {toy} | A toy | simulated | 1 passed, 1 declared missing, 1 skipped | not run |" in lines
    assert "| [accel-cpu](../../packages/accel-cpu/README.md) |  |  | not run | not run |" in lines
    assert "| [accel-alone](../../packages/accel-alone/README.md) |  |  |  |  |" in lines
    assert text.startswith("# accel\n")
    assert text.endswith(f"{feature_matrix.END}\n\nmore\n")
    assert "old" not in text


def test_recording_twice_changes_nothing(root: Path) -> None:
    kept = root / "docs/results/conformance/toy.json"
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
    assert "engine" not in error.partition("found:")[2].partition("expected:")[0]


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


def test_results_of_several_accelerators_are_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "record", row("math.adds_up"), key="") == 1
    assert "do not belong together" in capsys.readouterr().err


def test_the_pages_are_what_the_results_and_the_op_tables_show() -> None:
    kept = feature_matrix.load(ROOT)
    assert {"cpu", "npu"} <= {result.key for result in kept}
    stale = [str(file) for file, text in feature_matrix.written(ROOT) if file.read_text("utf-8") != text]
    assert stale == [], "python -m ci.feature_matrix write"
    checks = {f"{file}.{check}" for file, found in feature_matrix.checklist(ROOT).items() for check in found}
    for result in kept:
        assert {name.partition("[")[0] for name in result.checks} <= checks, result.key


#: Host optimizers, which DeepSpeed's CUDA accelerator takes from the CPU's folder.
HOST = {"CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder"}


def builders_in(folder: Path) -> set[str]:
    """The builders that modules of a folder define or import, but for base classes."""
    nodes = [
        node for file in folder.glob("*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    ]
    names = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    bases = ("OpBuilder", "NotImplementedBuilder")
    return {name for name in names if name.endswith("Builder") and not name.endswith(bases)}


@pytest.mark.parametrize("key", ["cpu", *SIMULATED])
def test_stock_deepspeed_s_builders_are_those_in_the_data(key: str) -> None:
    folder, data = deepspeed_folder(), workspace.read_toml(ROOT / feature_matrix.UPSTREAM_OPS)
    if folder is None or metadata.version("deepspeed") != data["release"]:
        pytest.skip(f"not run: DeepSpeed {data['release']} is not installed")
    found = builders_in(folder / "ops" / "op_builder" / ("" if key == "cuda" else key))
    assert found | (HOST if key == "cuda" else set()) == set(data["builders"][key])
    reported = {name.partition(".")[2] for name in data["faults"] if name.startswith(f"{key}.")}
    assert reported <= set(data["builders"][key])


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
        cls: type[OpBuilder] = feature_matrix.builder(key, row["builder"])
        reason = row["reason"].removeprefix("loaded; ").lower()
        taken = [each for each, begins in _BEGINS.items() if reason.startswith(begins)]
        assert set(taken) <= set(cls.implementations()), row


# ------------------------------------------------------------------------------------------- the matrix of evidence


def test_a_cell_of_the_matrix_has_the_worst_that_is_known(root: Path) -> None:
    missing = row("engine.trains[bf16-stage-1]", "skipped", "bf16")
    run(root, "record", row("engine.trains[fp32-stage-1]"), missing)
    page = (root / evidence.PAGE).read_text(encoding="utf-8")
    assert "| ZeRO 1 | simulated |" in page
    assert "1 of 2 configurations passed; `bf16` unsupported: it has none" in page
    assert "| bf16 | missing |" in page
    assert "| ZeRO 3 | not run |" in page


def test_the_largest_difference_of_programs_is_named_beside_equal_ones(root: Path) -> None:
    answers = zip(evidence._PROGRAMS["torch.compile"], ("equal", "9e-08"), strict=True)
    rows = [{"program": name, "toy": answer} for name, answer in answers]
    rows += [{"program": name, "toy": "equal"} for name in ("tensor parallel", "FSDP2", "DeepSpeed Ulysses")]
    rows += [{"program": name, "toy": "1e-07"} for name in ("DeepSpeed pipeline", "DeepSpeed MoE")]
    kept = {"rows": rows, "circumstances": {"date": "", "commit": ""}}
    (root / evidence.PROGRAMS).write_text(json.dumps(kept), encoding="utf-8")
    run(root, "record", row("engine.trains[fp32-stage-1]"))
    page = (root / evidence.PAGE).read_text(encoding="utf-8")
    assert "| torch.compile | toy | simulated | losses differ from the CPU's by 9e-08 of themselves |" in page


def test_a_report_of_a_real_device_is_a_row(root: Path) -> None:
    run(root, "record", row("engine.trains[fp32-stage-1]"))
    report: dict[str, Any] = {"accelerator": "toy", "simulated": "", "mode": "full"}
    report["versions"], report["rows"] = {"torch": "2.13.0"}, [{"state": "passed"}, {"state": "failed"}]
    folder = root / evidence.REPORTS
    folder.mkdir(parents=True)
    (folder / "toy.json").write_text(json.dumps(report), encoding="utf-8")
    (folder / "again.json").write_text(json.dumps({**report, "simulated": "toy"}), encoding="utf-8")
    feature_matrix.main(["write"], root)
    page = (root / evidence.PAGE).read_text(encoding="utf-8")
    assert (
        "| accel verify | toy | hardware once | 1 of 2 steps passed: [report](results/verify/toy.json)"
        in page
    )


def test_what_a_vendor_no_longer_declares_is_forgotten(root: Path) -> None:
    run(root, "record", row("device.index"), traits={"streams": "unsupported: none"})
    run(root, "record", row("device.index"), traits={})
    (result,) = feature_matrix.load(root)
    assert result.traits == {}
    assert result.date


def test_each_test_that_the_matrix_names_exists_and_each_word_has_a_meaning() -> None:
    for shown in workspace.read_toml(ROOT / evidence.TESTS)["shown"]:
        assert (ROOT / shown["by"]).is_file(), shown["by"]
        assert set(shown["on"].values()) <= evidence.WORDS.keys()


@pytest.mark.upstream
def test_device_calls_have_decisions() -> None:
    if metadata.version("deepspeed") != "0.19.8":
        pytest.skip("the decisions are on deepspeed 0.19.8")
    problems, rows = device_calls.decided(device_calls.sources())
    assert problems == []
    assert device_calls.page(rows) == device_calls.PAGE.read_text(encoding="utf-8")


def test_call_without_a_decision_is_reported(tmp_path: Path) -> None:
    source = (
        "def f(x):\n    y = x.cuda()\n    return torch.random.fork_rng(), torch.randn(2, pin_memory=True)\n"
    )
    (tmp_path / "new.py").write_text(source)
    found = device_calls.calls(tmp_path)
    texts = {"x.cuda()", "torch.random.fork_rng", "torch.randn(pin_memory=…)"}
    assert {(call.function, call.text) for call in found} == {("f", text) for text in texts}
    problems, _ = device_calls.decided({"new": found})
    assert [text for text in problems if text.startswith("no decision")] == [
        f"no decision: new: new.py:f: {call.text}" for call in found
    ]


def test_the_page_has_every_option_of_every_command_and_no_other() -> None:
    block = r"^##+ accel ([\w -]+?)(?: \([\w-]+\))?\n\n```text\n(.+?)^```$"
    page = (ROOT / command_help.PAGE).read_text(encoding="utf-8")
    shown = dict(re.findall(block, page, re.MULTILINE | re.DOTALL))
    expected = {name: parser for name, _, parser in command_help.parsers()}
    assert shown.keys() == expected.keys(), "python -m ci.command_help"
    for name, parser in expected.items():
        options = {o for a in parser._actions for o in a.option_strings if o.startswith("--")}
        listed = set(re.findall(r"^  (?:-\w(?: \w+)?, )?(--[\w-]+)", shown[name], re.MULTILINE))
        hidden = {o for a in parser._actions for o in a.option_strings if a.help == "==SUPPRESS=="}
        assert listed <= options, name
        missing = {option for option in options - hidden if option not in shown[name]}
        assert missing == set(), f"{name}: python -m ci.command_help"


# --- the page of versions is what the packages require and what accel-core does with interface numbers

VERSIONS_PAGE = (ROOT / versions.PAGE).read_text(encoding="utf-8")


def test_the_page_is_what_the_packages_say() -> None:
    assert versions.page(ROOT) == VERSIONS_PAGE, "python -m ci.versions"


def test_every_package_has_a_row_with_what_it_requires() -> None:
    rows = {row.split("]")[0]: row for row in re.findall(r"^\| \[(accel-.+)$", VERSIONS_PAGE, re.MULTILINE)}
    packages = workspace.load(ROOT)
    assert rows.keys() == packages.keys()
    for name, package in packages.items():
        for each in package.requires:
            assert not each.name.startswith("accel-") or f"{each.name} " in rows[name]


def test_a_vendor_package_of_this_interface_requires_what_the_page_says() -> None:
    shown = dict(re.findall(r"^\| (\d+)(?: \(to come\))? \| .+ \| `(.+)` \|$", VERSIONS_PAGE, re.MULTILINE))
    wanted = Requirement(shown[str(INTERFACE_VERSION)])
    vendors = [package for package in workspace.load(ROOT).values() if package.vendors]
    assert len(vendors) == 8
    assert [package.name for package in vendors if wanted not in package.requires] == []


# --- the section of known limits has all that a package declares missing, what failed, and what was not run


@pytest.fixture
def limits() -> str:
    """The section of mps, with two cells of the matrix."""
    pytest.importorskip("accel_mps", reason="not run: accel_mps is not installed")
    cells = [Cell("AutoTP", "mps", NOT_RUN, "see docs/a.md"), Cell("Graphs", "npu", NOT_RUN)]
    return evidence.limits(Results("mps", "accel_mps.accelerator:MPS_Accelerator", True, {}), cells)


def test_traits_have_reason_and_place(limits: str) -> None:
    rows = [line.strip("| ").split(" | ") for line in limits.splitlines() if line.startswith("| `")]
    assert ["`fp64`: float64 computes.", "always", "Metal has no double precision"] in rows
    reason = "macOS computes in bfloat16 from version 14 on"
    assert ["`bf16`: bfloat16 trains.", "on some machines", reason] in rows
    assert limits.count("`RaggedOpsBuilder`") == 1


def test_features_not_run_are_named(limits: str) -> None:
    assert "Not run: AutoTP (see a.md)." in limits
    assert "Graphs" not in limits.rpartition("Not run:")[2]


def test_page_without_section_raises() -> None:
    with pytest.raises(ValueError, match="limits: generated"):
        renewed("# mps", feature_matrix.LIMITS[0], "", feature_matrix.LIMITS[1])
