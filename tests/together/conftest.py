# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A machine with several vendors' runtimes: the testkit's stand-ins side by side, and one root of device files."""

import importlib.metadata
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import accel_sim
from accel_core import env, processes
from accel_core.devices import DEVICES
from accel_sim import build, settings, vendors

DETECT = Path(__file__).with_name("detect.py")
PACKAGES = {device.distribution for device in DEVICES}


@dataclass(frozen=True)
class Detected:
    """What detect.py tells."""

    answer: dict[str, Any]

    @property
    def chosen(self) -> str:
        return str(self.answer["chosen"])

    @property
    def imported(self) -> list[str]:
        """Runtimes that were imported by anything."""
        return list(self.answer["imported"])

    def states(self, *states: str) -> set[str]:
        """Labels of the candidates in one of these states."""
        return {c["label"] for c in self.answer["candidates"] if c["state"] in states}

    def reason(self, label: str) -> str:
        """The sentence about one candidate."""
        (found,) = (c["reason"] for c in self.answer["candidates"] if c["label"] == label)
        return str(found)


class Machine:
    """What is installed in addition to the packages of this environment, and which device files there are.

    site: a folder on the path of its processes; root: what ACCEL_SYSROOT names.
    """

    def __init__(self, folder: Path) -> None:
        self.site, self.root = folder / "site", folder / "root"
        self.site.mkdir()
        self.root.mkdir()
        self.builds: dict[str, str] = {}
        self.variables: dict[str, str] = {}

    def install(self, *keys: str, autoload: bool = False, files: bool = True) -> None:
        """Runtimes of these vendors, as `accel sim` gives them.

        autoload: `import torch` imports them, where the real ones ask for it.
        files:    the machine has their device files, or their build of torch.
        """
        for key in keys:
            vendor = vendors.find(key)
            environment = accel_sim.environment(key, devices=2, base={})
            stand_in = Path(environment["PYTHONPATH"])
            of_torch = not vendor.packages
            skip = () if autoload or of_torch else ("entry_points.txt",)
            ignored = shutil.ignore_patterns("sysroot", "__pycache__", *skip)
            shutil.copytree(stand_in, self.site, ignore=ignored, dirs_exist_ok=True)
            if not files:
                continue
            shutil.copytree(stand_in / "sysroot", self.root, dirs_exist_ok=True)
            self.builds |= vendor.torch_build
            for name, value in vendor.environment.items():
                self.variables[name] = value.format(sysroot=self.root)
        lines = (f"{name} = {value!r}\n" for name, value in self.builds.items())
        (self.root / "torch").mkdir(exist_ok=True)
        (self.root / "torch/version.py").write_text("".join(lines), encoding="utf-8")

    def environment(self, device: str = "", **variables: str) -> dict[str, str]:
        """Of its processes. device: the one that works here, if it is torch's own (xpu, cuda, mps) or described."""
        ours = ("ACCEL_", "DS_ACCELERATOR", "TORCH_DEVICE_BACKEND_AUTOLOAD", *self._visible())
        base = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        if cache := os.environ.get(env.CACHE_DIR.name):
            base[env.CACHE_DIR.name] = cache
        return {
            **base,
            "PYTHONPATH": str(self.site),
            "ACCEL_SYSROOT": str(self.root),
            settings.DEVICE.name: device,
            **self.variables,
            **variables,
        }

    def detect(self, device: str = "", **variables: str) -> Detected:
        """A fresh process selects."""
        command = [sys.executable, "-W", "ignore", str(DETECT)]
        done = processes.run(command, 300, env=self.environment(device, **variables), cwd=self.root)
        assert done.returncode == 0, done.stderr[-3000:]
        return Detected(json.loads(done.stdout.splitlines()[-1]))

    def _visible(self) -> tuple[str, ...]:
        return tuple(name for vendor in vendors.VENDORS for name in vendor.visible.variables)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with all vendor packages of this repository, and no runtime."""
    installed = {dist.name for dist in importlib.metadata.distributions()}
    assert installed >= PACKAGES, "python -m ci.wheels install"
    build.library()
    return Machine(tmp_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--visible-devices", metavar="FILE", help="write the table of visible devices to this Markdown file"
    )


_HEAD = """# The device that a rank really gets

Written by `python -m pytest tests/together/test_visible_devices.py --visible-devices docs/results/visible-devices.md`;
each cell is a test, and a run of some replaces these cells. A machine with four simulated devices, 0 to 3; the mask is
the vendor's variable as a job inherits it: subset `1,3`, reordered `3,1`, the UUIDs of 1 and 3 in the vendor's form,
empty, unknown `1,9,2`, unknown first `9,1`, repeated `1,1,2`, negative `1,-1,2`, spaces `1, 3`, text `NoDevFiles`. A
cell lists the machine's numbers of the devices that the ranks hold, rank 0 first. `runtime` has the devices that a
list leaves and what of it the doctor and the launchers name as ignored; the doctor's own cell has the count. `none` is
one process without a launcher; torchrun starts as many ranks as devices are visible. Programs were run for the first
four masks, `--num_gpus` for two, and a few of the rest. torch {torch} and deepspeed {deepspeed} are real, the devices
are simulated. What a runtime makes of a mask is taken from [its vendor's documents and
sources](../launch.md#visible-devices). `cpu`: the mask leaves no device, and the run says so and uses the CPU. An empty
cell was not run.

"""


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    target = config.getoption("--visible-devices", default=None)
    if not target:
        return
    lines = Path(target).read_text(encoding="utf-8").splitlines() if Path(target).exists() else []
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    columns = table[0] if table else ["vendor", "mask"]
    rows = {(row[0], row[1]): dict(zip(columns[2:], row[2:], strict=True)) for row in table[2:]}
    for kind in ("passed", "failed"):
        for report in terminalreporter.getreports(kind):
            reported = {name: str(value) for name, value in report.user_properties}
            if report.when == "call" and "cell" in reported:
                cell = reported["cell"].replace("|", "/")
                row = rows.setdefault((reported["vendor"], reported["mask"]), {})
                row[reported["launcher"]] = cell if report.passed else f"**wrong**: {cell}"
    columns = list(dict.fromkeys([*columns, *(name for row in rows.values() for name in row)]))
    versions = {name: importlib.metadata.version(name) for name in ("torch", "deepspeed")}
    text = _HEAD.format(**versions) + f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n"
    for key, row in rows.items():
        text += f"| {' | '.join([*key, *(row.get(name, '') for name in columns[2:])])} |\n"
    Path(target).write_text(text, encoding="utf-8")
