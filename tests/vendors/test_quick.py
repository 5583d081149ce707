# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The quick part of what docs/results/conformance.md claims, for each accelerator of that page.

The whole is run by each package's tox environment. A device that is not here is simulated.
"""

import json
import os
import sys
from pathlib import Path

import pytest

import accel_sim
from accel_core import processes
from ci import conformance
from ci.conformance import Results
from shared.children import on_device

ROOT = Path(__file__).resolve().parents[2]
CLAIMED = conformance.load(ROOT)


def shown(claimed: Results, folder: Path, *arguments: str, **modes: bool) -> Results:
    """What a run of the testkit shows on the device, which is simulated in these modes."""
    file = folder / "results.json"
    base = {name: value for name, value in os.environ.items() if name != "DS_ACCELERATOR"}
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--accel", claimed.key, "--results", str(file)]
    environment = accel_sim.environment(claimed.key, base=base, **modes) if claimed.simulated else base
    done = processes.run([sys.executable, *command, *arguments], env=environment, cwd=ROOT)
    assert file.is_file(), done.stdout[-2000:] + done.stderr[-2000:]
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), done.stdout[-4000:]
    return conformance.condense([json.loads(file.read_text(encoding="utf-8"))])


IMPORT_ALL = """
import importlib, pkgutil, sys, torch
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if module.name != "accel_xpu.ipex.accelerator":  # IPEX is not simulated
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize("claimed", CLAIMED, ids=lambda claimed: claimed.key)
@pytest.mark.sample("cpu", "xpu")
def test_every_module_of_a_vendor_package_imports_on_its_device(claimed: Results) -> None:
    # A simulated runtime has only the names of shared/surfaces: an import of another one fails.
    on_device(claimed.key if claimed.simulated else "cpu", "-c", IMPORT_ALL, f"accel_{claimed.key}")


@pytest.mark.parametrize("claimed", CLAIMED, ids=lambda claimed: claimed.key)
def test_the_suite_shows_what_is_claimed(claimed: Results, tmp_path: Path) -> None:
    """In the modes that find accelerators that do not wait: they must not change what the suite shows."""
    tiers = ["--tier", "host", "--tier", "device", "--quick"]
    found = shown(claimed, tmp_path, "--pyargs", "accel_testkit.suite", *tiers, race=True, deferred=True)
    assert len(found.checks) >= 150
    assert list(map(str, conformance.differences(ROOT, found, partial=True))) == []


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [c for c in CLAIMED if c.simulated], ids=lambda claimed: claimed.key)
def test_the_suite_shows_the_same_like_hardware(claimed: Results, tmp_path: Path) -> None:
    """On one device with other sums, late errors and shared memory: no check relies on the plain simulation."""
    tiers = ["--tier", "host", "--tier", "device"]
    found = shown(claimed, tmp_path, "--pyargs", "accel_testkit.suite", *tiers, like_hardware=True)
    assert len(found.checks) >= 150
    assert list(map(str, conformance.differences(ROOT, found, partial=True))) == []


# The tox environment of each vendor and `make safety-net` run the whole engine on every device.
def test_the_engine_shows_what_is_claimed(tmp_path: Path) -> None:
    results = next(each for each in CLAIMED if each.key == "npu")
    found = shown(results, tmp_path, "--pyargs", "accel_testkit.engine", "--quick", "-k", "bf16-stage-2")
    assert len(found.engine) >= 1
    assert list(map(str, conformance.differences(ROOT, found, partial=True))) == []


def test_optimizers_of_the_cpu_are_right_in_plain_torch(tmp_path: Path) -> None:
    """Without a built library or a compiler: all samples that the library is tried with."""
    alone = {"PATH": "", "CXX": "", "ACCEL_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **alone}
    chosen = "CPU and samples"
    command = "pytest -q -n 0 -p no:cacheprovider --accel cpu --pyargs accel_testkit.suite.test_ops -k"
    done = processes.run([sys.executable, "-m", *command.split(), chosen], env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
