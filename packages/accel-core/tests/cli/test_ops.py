# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel ops`: what is served, whether it loads and computes the right thing, how it is shown; profiles of scripts."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.errors import OpFailed
from accel_core.op_builder import self_test

from .conftest import Environment, Result, terminal

HOST = torch.device("cpu")

Run = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture
def ops(odd: Environment) -> Run:
    """`accel ops … --json` with accel-odd's accelerator: what it ended with, and the rows by builder."""

    def run(*arguments: str, **variables: str) -> tuple[Result, dict[str, Any]]:
        result = odd.run("ops", *arguments, "--json", **{"DS_ACCELERATOR": "odd", **variables})
        rows = json.loads(result.out)["ops"] if result.out else []
        return result, {row["builder"]: row for row in rows}

    return run


def process(row: dict[str, Any]) -> str:
    """The process in which the op was loaded."""
    return str(row["reason"].rpartition(" in ")[2])


def test_list_has_served_and_missing_ops(ops: Run) -> None:
    result, rows = ops("list")
    assert result.status == 0
    assert [name for name, row in rows.items() if row["state"] == "served"] == [
        "FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "OddLastBuilder", "OddSlowBuilder",
    ]  # fmt: skip
    assert "nobody has written it" in rows["AsyncIOBuilder"]["reason"]


def test_reason_is_read_after_loading(ops: Run) -> None:
    _, rows = ops("list")
    assert rows["FusedAdamBuilder"]["reason"] == "to be compiled when first used"
    for action, done in (("build", "loaded"), ("test", "loaded and run on a tiny input")):
        _, rows = ops(action, "FusedAdamBuilder")
        assert rows["FusedAdamBuilder"]["reason"].startswith(f"{done}; plain torch in ")
        assert rows["FusedAdamBuilder"]["seconds"] >= 0


def test_ops_after_a_crash(ops: Run) -> None:
    names = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "OddLastBuilder")
    result, rows = ops("test", *names)
    assert result.status == 1
    assert tuple(rows) == names
    assert [row["state"] for row in rows.values()] == ["ok", "failed", "failed", "ok"]
    assert "libodd.so: cannot open" in rows["FusedLambBuilder"]["reason"]
    assert rows["FusedLionBuilder"]["reason"] == "died by SIGABRT: assertion failed in odd.cpp"
    assert rows["FusedLionBuilder"]["op"] == "fused_lion"
    assert process(rows["FusedAdamBuilder"]) != process(rows["OddLastBuilder"])
    _, rows = ops("test", "FusedAdamBuilder", "FusedLambBuilder", "OddLastBuilder")
    assert process(rows["FusedAdamBuilder"]) == process(rows["OddLastBuilder"])


@pytest.mark.parametrize("action", ["list", "build", "test"])
@pytest.mark.parametrize(("name", "near"), [("FusedAdam", "FusedAdam"), ("fused_lion", "FusedLion")])
def test_unknown_builder_is_wrong_usage(ops: Run, action: str, name: str, near: str) -> None:
    result, rows = ops(action, "FusedAdamBuilder", name)
    assert (result.status, rows) == (2, {})
    assert "[ACC-701]" in result.err
    assert f"such as {near}Builder" in result.err


def test_named_builder_that_is_missing_fails(ops: Run) -> None:
    result, rows = ops("test", "AsyncIOBuilder")
    assert (result.status, rows["AsyncIOBuilder"]["state"]) == (1, "missing")
    assert ops("list", "AsyncIOBuilder")[0].status == 0


@pytest.mark.parametrize(
    ("variables", "found"),
    [({"DS_ACCELERATOR": "nonsense"}, ["[ACC-201]"]), ({"ODD_CRASH": "1"}, ["[ACC-203]", "died by SIGABRT"])],
)
def test_failed_selection_is_the_error(ops: Run, variables: dict[str, str], found: list[str]) -> None:
    result, rows = ops("build", **variables)
    assert (result.status, rows) == (1, {})
    assert all(text in result.err for text in found), result.err


@pytest.mark.parametrize(("command", "absent"), [("list", "deepspeed"), ("build FusedAdamBuilder", "torch")])
def test_no_large_module_is_imported(odd: Environment, command: str, absent: str) -> None:
    odd.module(
        "traced.py",
        f"""
        import sys
        from accel_core.cli.main import main

        status = main(["ops", *{command.split()}])
        print(status, {absent!r} in sys.modules)
        """,
    )
    assert odd.python_module("traced", DS_ACCELERATOR="odd").out.splitlines()[-1] == "0 False"


def test_wrong_result_fails_self_test() -> None:
    def adds(chunk: int, flag: object, lists: list[list[torch.Tensor]], lr: float, *_: object) -> None:
        lists[1][0].add_(lr)

    with pytest.raises(OpFailed, match="ACC-405"):
        self_test.run("fused_adam", SimpleNamespace(multi_tensor_adam=adds), HOST)


def test_op_without_known_input() -> None:
    assert self_test.run("transformer", object(), HOST) == "loaded; no tiny input is known for it"


# --- `accel ops build`: each op is shown when it is tried

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(odd: Environment, tmp_path: Path) -> Start:
    """Starts `accel ops build` with an op that is loaded once `tmp_path/go` exists."""

    variables = {"DS_ACCELERATOR": "odd", "ODD_WAIT": str(tmp_path / "go")}
    command = ("ops", "build", "FusedAdamBuilder", "OddSlowBuilder")
    return lambda stdout: odd.start(*command, stdout=stdout, stderr=subprocess.DEVNULL, **variables)


def test_pipe_gets_each_line_at_once(start: Start, tmp_path: Path) -> None:
    with start(subprocess.PIPE) as process:
        lines = (line.decode() for line in process.stdout)
        assert next(lines).split()[:2] == ["FusedAdamBuilder", "ok"]
        (tmp_path / "go").touch()
        *_, last = lines
    assert process.returncode == 0
    last = last.removesuffix("\n")
    assert last.split()[:2] == ["OddSlowBuilder", "ok"]
    assert last == last.rstrip()


def test_terminal_shows_op_being_loaded(start: Start, tmp_path: Path) -> None:
    with terminal(start) as (process, read_until):
        assert "selecting the accelerator" in read_until("selecting the accelerator")
        assert "FusedAdamBuilder" in read_until("loading OddSlowBuilder")
        (tmp_path / "go").touch()
        assert re.search(r"OddSlowBuilder +ok ", read_until(""))
    assert process.returncode == 0
