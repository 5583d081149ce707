# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The reports of accel verify, compare and rehearse in a real browser: one file, nothing from a network.

Setup as of test_browser.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
for _package in ("accel_sim", "accel_testkit"):
    pytest.importorskip(_package, reason=f"not run: package {_package}")

ACCEL = (sys.executable, "-m", "accel_core.cli")
#: Two steps of a model; on the second run one of its parameters is another one.
PROGRAM = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
if "--wrong" in sys.argv:
    model[2].weight.data *= 1.01
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
#: A rank of a job that does not fit.
LARGE = """
import torch
model = torch.nn.Linear(1 << 14, 1 << 14).cuda()
model(torch.ones(1, 1 << 14, device="cuda")).sum().backward()
torch.optim.Adam(model.parameters()).step()
"""


def accel(folder: Path, *words: str, **variables: str) -> int:
    done = subprocess.run(
        [*ACCEL, *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.returncode


def verified(folder: Path) -> Path:
    steps = ("--step", "machine", "--step", "doctor")
    sim = ("sim", "npu", "--behaviour", "npu.no-cann", "--", *ACCEL)
    assert accel(folder, *sim, "verify", "--accel", "npu", *steps, "--out", "report") == 1
    return folder / "report/report.html"


def compared(folder: Path) -> Path:
    (folder / "program.py").write_text(PROGRAM)
    program = ("--", sys.executable, "program.py")
    assert accel(folder, "compare", "record", "run", *program, DS_ACCELERATOR="cpu") == 0
    assert accel(folder, "compare", "replay", "run", *program, "--wrong", DS_ACCELERATOR="cpu") == 3
    return folder / "run/replay/compare.html"


def rehearsed(folder: Path) -> Path:
    (folder / "program.py").write_text(LARGE)
    size = ("--memory", "2GiB", "--reserve", "100MiB", "--ranks", "1")
    words = ("rehearse", "cuda:h100-80", *size, "--html", "page.html", "--", "program.py")
    assert accel(folder, *words) == 3
    return folder / "page.html"


@pytest.mark.parametrize(
    ("make", "first"),
    [
        pytest.param(verified, "libhccl.so", id="verify"),
        pytest.param(compared, "differs", id="compare"),
        pytest.param(rehearsed, "does not fit", id="rehearse"),
    ],
)
def test_what_failed_is_on_the_first_screen_of_a_report(
    make: Any, first: str, page: Any, tmp_path: Path
) -> None:
    file = make(tmp_path)
    asked: list[str] = []
    page.context.unroute_all()
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(file.as_uri())
    assert page.said == []
    assert asked == [file.as_uri()]
    place = page.get_by_text(first).first.bounding_box()
    assert place is not None
    assert place["y"] < 720
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
