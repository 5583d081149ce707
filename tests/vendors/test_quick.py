# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quick part of what docs/results/conformance.md claims, for each accelerator of that page.

The whole is run by each package's tox environment. A device that is not here is simulated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accel_testkit import sim
from ci.features import results
from ci.features.results import FAILED, Results

ROOT = Path(__file__).resolve().parents[2]
CLAIMED = results.load(ROOT)


def shown(claimed: Results, folder: Path, *arguments: str) -> Results:
    """What a run of the testkit shows on the device."""
    file = folder / "results.json"
    base = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--accel", claimed.key, "--results", str(file)]
    done = subprocess.run(
        [sys.executable, *command, *arguments],
        env=sim.environment(claimed.key, base=base) if claimed.simulated else base,
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert file.is_file(), done.stdout[-2000:] + done.stderr[-2000:]
    found = results.condense([json.loads(file.read_text(encoding="utf-8"))])
    assert done.returncode == int(FAILED in outcomes(found).values()), done.stdout[-4000:]
    return found


def outcomes(found: Results) -> dict[str, Any]:
    """Of checks of the suite, and of configurations of the engine."""
    return {**found.checks, **{name: about["outcome"] for name, about in found.engine.items()}}


def expect_as_claimed(claimed: Results, found: Results, at_least: int) -> None:
    """Every outcome is the one on the page."""
    new = outcomes(found)
    assert len(new) >= at_least
    kept = outcomes(claimed)
    assert new == {name: kept.get(name, "not kept") for name in new}, "python -m ci.feature_matrix record"


@pytest.mark.parametrize("claimed", CLAIMED, ids=lambda claimed: claimed.key)
def test_the_suite_shows_what_is_claimed(claimed: Results, tmp_path: Path) -> None:
    tiers = ["--tier", "host", "--tier", "device", "--quick"]
    found = shown(claimed, tmp_path, "--pyargs", "accel_testkit.suite", *tiers)
    expect_as_claimed(claimed, found, at_least=150)


@pytest.mark.parametrize("claimed", CLAIMED, ids=lambda claimed: claimed.key)
def test_the_engine_shows_what_is_claimed(claimed: Results, tmp_path: Path) -> None:
    found = shown(claimed, tmp_path, "--pyargs", "accel_testkit.engine", "--quick")
    expect_as_claimed(claimed, found, at_least=8)
