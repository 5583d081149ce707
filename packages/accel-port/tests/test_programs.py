# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them run after the port as before: on the CPU, and on simulated devices as on CUDA."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from accel_port.command import main
from accel_port.porting import port

HERE = Path(__file__).parent
PROGRAMS = sorted(path.name for path in (HERE / "programs").glob("*.py"))
#: Those that need a device, or ranks, before the port.
NEED_A_DEVICE = {
    "amp_train.py", "current_device_parallel.py", "ddp_torchrun.py", "needs_gpu.py", "prefetcher.py",
    "typed_constructors.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folder of the programs, and a copy of it that is ported."""
    after = tmp_path_factory.mktemp("programs") / "after"
    shutil.copytree(HERE / "programs", after)
    assert main(["--write", "--force", "--quiet", str(after)]) == 0
    return HERE / "programs", after


def _run(folder: Path, names: list[str], environment: dict[str, str]) -> dict[str, str]:
    programs = {name: {"arguments": [], "ranks": 1} for name in names}
    done = subprocess.run(
        [sys.executable, str(HERE / "run_programs.py"), str(folder)],
        input=json.dumps(programs), capture_output=True, text=True, check=False, timeout=1800,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        name: result["out"] if result["status"] == 0 else f"failed: {result['error']}"
        for name, result in json.loads(done.stdout).items()
    }


@pytest.mark.parametrize("target", ["deepspeed", "accel", "torch"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_ported_once(name: str, target: str) -> None:
    text = (HERE / "programs" / name).read_text(encoding="utf-8")
    ported = port(text, target)  # raises Unstable if a second run would change it
    assert ported.text != text or ported.findings or name == "with_helpers.py"


@pytest.mark.more
def test_programs_print_the_same_on_the_cpu(folders: tuple[Path, Path]) -> None:
    pytest.importorskip("deepspeed")
    names = [name for name in PROGRAMS if name not in NEED_A_DEVICE]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu"}
    before, after = (_run(folder, names, environment) for folder in folders)
    assert after == before
    assert not [name for name in names if before[name].startswith("failed")]
