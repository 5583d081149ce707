# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel bench` as a user runs it, interrupted, and where it cannot measure."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_core.isolated import run_module
from accel_testkit import stock_builds
from accel_testkit.bench import files, offload, optimizers, stock, table
from accel_testkit.bench.command import PARTS
from accel_testkit.verify.report import read

ACCEL = run_module("accel_core.cli")
#: A guard against a hang.
_LIMIT = 1800


def bench(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ACCEL, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=_LIMIT, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


def measured(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (row["what"], row["size"]): row for part in read(folder / "bench.json").rows for row in part.table
    }


def test_a_row_has_milliseconds_and_how_many_times_as_fast_ours_is() -> None:
    row = table.row("Adam", "1 Mi", {"ours": 0.002, "DeepSpeed": 0.005, "limit": 0.001})
    assert row == {
        "what": "Adam", "size": "1 Mi", "unit": "ms", "value": 2, "DeepSpeed": 5, "torch": None, "limit": 1,
    }  # fmt: skip
    assert list(table.cells(row).values()) == ["Adam", "1 Mi", "2 ms", "5 (2.50 x)", "—", "1 (0.50 x)"]


def test_the_page_has_the_table_and_the_picture_a_bar_for_each_comparison() -> None:
    rows = [
        table.row("<Adam>", "1 Mi", {"ours": 0.002, "DeepSpeed": 0.005, "torch": 0.002}),
        table.row("all_reduce", "4 KiB", {"ours": 0.001, "torch": 0.1}),
        table.row("file", "1 GiB", {"ours": 0.001, "limit": 0.001}),
    ]
    page = table.markdown("title", rows, {"machine": "one"})
    assert "| all_reduce | 4 KiB | 1 ms | — | 100 (100.00 x) | — |" in page
    assert page.endswith("Measured on: machine one.\n")
    drawn = ET.fromstring(table.picture(rows))
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["<Adam>, 1 Mi", "2.50 x DeepSpeed", "all_reduce, 4 KiB", "100.00 x torch"]
    box = [float(number) for number in drawn.attrib["viewBox"].split()]
    bars = [rect for rect in drawn.iter("{http://www.w3.org/2000/svg}rect") if "x" in rect.attrib]
    assert all(float(bar.attrib["x"]) + float(bar.attrib["width"]) < box[2] for bar in bars)


def test_an_op_of_deepspeed_that_is_not_compiled_is_left_out_with_the_reason(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ACCEL_CACHE_DIR", str(tmp_path))
    for name in stock_builds.environment():
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that they are restored
    op, reason = stock.own_op("CPUAdamBuilder", build=False)
    assert op is None
    assert "--compile" in reason
    op, reason = stock.own_op("NoSuchBuilder", build=True)
    assert op is None
    assert "NoSuchBuilder cannot be compiled here" in reason


def test_every_contender_takes_a_step_on_the_same_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Tensor] = []
    randn = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size: made.append(randn(*size)) or made[-1])
    calls = optimizers.contenders(1000, torch.float32, None)
    assert set(calls) == {"ours", "torch"}
    for call in calls.values():
        before = made[0].clone()
        call()
        assert (made[0] != before).all()


def test_direct_io_writes_and_reads_the_bytes(tmp_path: Path) -> None:
    limit = files.Limit()
    if not limit.works(tmp_path):
        pytest.skip("this file system takes no direct I/O")
    sent, came = limit.locked(3 << 20), limit.locked(3 << 20)
    sent.copy_(torch.arange(3 << 20) % 251)
    limit.transfer(sent, tmp_path / "file", True)
    limit.transfer(came, tmp_path / "file", False)
    assert torch.equal(sent, came)


def test_a_folder_without_direct_io_has_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not files.Limit().works(tmp_path / "missing")

    def refused(*_: object) -> int:
        raise OSError("Invalid argument")

    monkeypatch.setattr(os, "pwrite", refused)
    assert not files.Limit().works(tmp_path)


@pytest.mark.more
def test_stock_and_replaced_methods_take_turns() -> None:
    program = (
        "import sys, json\nfrom accel_testkit.bench import offload\n"
        "runs = offload.timed(2, 'bf16', 17, 2)\n"
        "print(json.dumps({name: len(pairs) for name, pairs in runs.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "DS_ACCELERATOR": "cpu"},
        capture_output=True, text=True, timeout=_LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"DeepSpeed": 2, "ours": 2}
    assert offload.WIDTH**2 < 17e6


@pytest.mark.more
def test_parts_are_measured_and_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("--part", "files", "--part", "collectives", "--disk", tmp_path, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    found = measured(out)
    assert all(row["value"] > 0 for row in found.values())
    kinds = {what for what, _ in found}
    assert "dist.all_reduce, 2 ranks" in kinds
    assert "file read, page-locked" in kinds
    assert found["dist.all_reduce, 2 ranks", "1 MiB"]["torch"] > 0
    assert [row.title for row in read(out / "bench.json").rows] == [
        PARTS[name][0] for name in ("files", "collectives")
    ]
    assert "inference_all_reduce, 2 ranks" in (out / "bench.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"], "the measured files are removed"
    assert "written:" in done.stdout
    shown = bench("--show", out / "bench.json")
    assert shown.returncode == 0
    assert "file read, page-locked" in shown.stdout
    assert bench("--compare", out / "bench.json", out / "bench.json").stdout == "no difference\n"


@pytest.mark.more
def test_a_part_that_fails_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = bench("--part", "files", "--part", "optimizers", "--disk", tmp_path / "missing", "--out", out)
    assert done.returncode == 1
    assert "file I/O crashed: FileNotFoundError" in done.stdout
    assert any(what.startswith("Adam") for what, _ in measured(out))


def test_ctrl_c_leaves_the_figures_so_far(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ACCEL, "bench", "--part", "offload", "--out", str(tmp_path)], stderr=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stderr is not None
    assert "ZeRO-Offload" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=_LIMIT)
    assert process.returncode == 130
    assert "written:" in out
    assert read(tmp_path / "bench.json").rows == []


def expect_refused(*arguments: str | Path) -> None:
    done = bench(*arguments)
    assert done.returncode == 1
    assert "ACC-709" in done.stderr
    assert "Traceback" not in done.stderr


ROW = {"step": "x", "title": "x", "state": "passed"}
NO_RESULTS = {
    "a report of verify": {"mode": "quick"},
    "rows of texts": {"rows": [{**ROW, "table": [{"what": "x", "value": "1"}]}]},
    "no time at all": {"rows": [{**ROW, "table": [{"what": "x", "size": "", "unit": "", "value": 0}]}]},
}


@pytest.mark.parametrize("name", NO_RESULTS)
def test_a_file_that_is_no_result_of_bench_is_refused(tmp_path: Path, name: str) -> None:
    plain = {
        "accelerator": "cpu", "mode": "bench", "simulated": "", "made": "", "versions": {}, "rows": [], "schema": 1,
    }  # fmt: skip
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(plain | NO_RESULTS[name]))
    expect_refused("--show", path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    expect_refused("--part", "optimizers", "--out", tmp_path / "file" / "out")
