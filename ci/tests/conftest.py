# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from ci.tests.repository import CONTACT, HEADER, Repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """accel-core, accel-cpu on it, accel-both on both through an extra, accel-alone on nothing; committed."""
    repo = Repository(tmp_path / "checkout")
    repo.root.mkdir()
    repo.git("init", "-q", "-b", "main")
    repo.package("accel-core", version="0.2.0", extras={"deepspeed": ["deepspeed>=0.18,<0.20"]})
    cascade = (
        'CASCADE = (CascadeEntry("npu", 700, "NPU_Accelerator"), CascadeEntry("cpu", 0, "CPU_Accelerator"))\n'
    )
    repo.write("packages/accel-core/src/accel_core/cascade.py", HEADER + cascade)
    repo.package("accel-cpu", requires=("accel-core>=0.2,<0.4", "torch>=2.5"), vendor="cpu")
    repo.package("accel-both", requires=("accel-core>=0.2,<0.4",), extras={"test": ["accel_cpu>=0.1,<1"]})
    repo.package("accel-alone")
    repo.write("pyproject.toml", CONTACT)
    repo.write("README.md", "# accel\n")
    repo.commit("the first")
    return repo
