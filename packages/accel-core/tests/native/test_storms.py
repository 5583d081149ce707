# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Many builders at once, and builders killed at any moment: the next caller gets a whole library."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from users import BUILD, answer

from accel_core.native import Source, build


def start(source: Source) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(source.folders[0])],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_sixteen_processes_at_once_get_one_library(source: Source, cache: Path) -> None:
    builders = [start(source) for _ in range(16)]
    paths = {builder.communicate()[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0] * 16
    assert len(paths) == 1
    assert answer(Path(paths.pop())) == 42


@pytest.mark.parametrize("kills", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_builder_killed_at_any_moment_is_in_nobodys_way(source: Source, cache: Path, kills: int) -> None:
    draw = random.Random(kills)
    began = time.monotonic()
    start(source).communicate()
    whole = time.monotonic() - began
    for number in range(kills):
        # Another source each time, so that each builder has something to do.
        (source.folders[0] / "answer.h").write_text(f"#define ANSWER {number}\n")
        builder = start(source)
        time.sleep(draw.uniform(0.3, 1.1) * whole)
        os.killpg(builder.pid, signal.SIGKILL)
        builder.communicate()
        if draw.random() < 0.1 or number == kills - 1:
            assert answer(build.library(source)) == number
