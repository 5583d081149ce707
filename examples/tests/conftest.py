# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes the example importable, and runs its script as a user would."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_core import processes
from shared.children import run

EXAMPLES = Path(__file__).parent.parent
sys.path.insert(0, str(EXAMPLES))

FROM_A_LAUNCHER = ("RANK", "LOCAL_", "WORLD_SIZE", "MASTER_")
Command = Callable[..., processes.Ended]


@pytest.fixture(scope="session")
def python() -> Command:
    """Run `python <arguments>` in a folder and return what it said."""

    def run_python(folder: Path, *arguments: str | Path, **environment: str) -> processes.Ended:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(FROM_A_LAUNCHER)}
        given = {**inherited, "OMP_NUM_THREADS": "1", **environment}
        return run(sys.executable, *arguments, cwd=folder, env=given)

    return run_python


@pytest.fixture(scope="session")
def train(python: Command) -> Command:
    """Run train_lm.py in a folder, as one rank."""
    return lambda folder, *flags, **variables: python(folder, EXAMPLES / "train_lm.py", *flags, **variables)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small text files that follow a simple rule, so that a tiny model learns it at once."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(40):
        lines = (f"file {number:02d} line {n:03d}: {n:03d} + 1 = {n + 1:03d}\n" for n in range(80))
        (folder / f"sums{number:02d}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def tiny(texts: Path) -> list[str]:
    """Flags of a run that takes a moment; its dropout makes the random state matter."""
    flags = "--context 32 --layers 1 --heads 2 --width 16 --batch 4 --dropout 0.1 --sample 8"
    return ["--data", str(texts), *flags.split()]
