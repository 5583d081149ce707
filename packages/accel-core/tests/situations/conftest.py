# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Machines made to order, on which the doctor and two programs run, each in processes of its own.

`pytest packages/accel-core/tests/situations --situations docs/results/situations.md` writes the table.
"""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any

import pytest

from accel_core.processes import Child

from ..site_packages import SitePackages

PROGRAMS = Path(__file__).with_name("programs")
TOYS = Path(__file__).resolve().parents[4] / "shared/toy_vendors"
#: Nothing of these may leak in from the shell that runs the tests.
STEERING = ("ACCEL_", "DS_", "TOY_", "CLASSIC_", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH", "RANK")
STEERING += ("LOCAL_", "WORLD_SIZE", "MASTER_", "PYTEST_", "ASCEND_", "COLUMNS", "GROUP_", "ROLE_")

#: As vendors' runtimes do: claims torch's PrivateUse1 slot and registers torch.<key>.
RUNTIME = """
import sys, types, torch

module = types.ModuleType("torch.{key}")
module.is_available = lambda: {devices} > 0
module.device_count = lambda: {devices}
module.Event = module.Stream = type("Event", (), {{}})
torch.utils.rename_privateuse1_backend("{key}")
torch._register_device_module("{key}", module)
sys.modules["torch.{key}"] = module


def _autoload():
    pass  # importing it is all
"""


@dataclass(frozen=True)
class Ended:
    """What one process of a program came to."""

    accelerator: str = ""
    error: str = ""
    traceback: str = ""
    death: str = ""

    def in_words(self) -> str:
        """For the table."""
        if self.accelerator:
            return f"`{self.accelerator.replace(':', '.')}`"
        return self.death or self.error


class Site(SitePackages):
    """What is installed, in addition to torch, deepspeed, accel-core and accel-cpu: no other of our packages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "site")
        self.root = folder / "root"
        self.path.mkdir()
        self.root.mkdir()
        self.device_file("torch/version.py")  # a build for CPUs, whatever is installed here
        for dist in importlib.metadata.distributions():
            if dist.entry_points.select(group="accel.vendors") and dist.name != "accel-cpu":
                self.distribution(dist.name, "0")

    def toy(self, name: str = "toy") -> None:
        """One of the toy vendors of this repository."""
        package = f"accel_{name}"
        shutil.copytree(TOYS / f"accel-{name}" / "src" / package, self.path / package)
        self.distribution(f"accel-{name}", entry_points={"accel.vendors": {name: f"{package}.vendor:VENDOR"}})

    def vendor(
        self,
        key: str,
        priority: int = 2000,
        confirm: str = "pass",
        devices: int = 2,
        hardware: bool | None = True,
        **fields: Any,
    ) -> None:
        """A vendor package of our making."""
        evidence = f"return Evidence(True, {hardware}, 'its device file was looked for')"
        counted = f"{confirm}\n    return Confirmation({devices}, 'its runtime counts {devices}')"
        self.install(key, priority=priority, evidence=evidence, confirm=counted, **fields)

    def runtime(self, key: str, source: str = RUNTIME, devices: int = 2, autoload: bool = False) -> None:
        """A vendor's runtime torch_<key>; torch imports it by itself where it asks for that."""
        name = f"torch_{key}"
        self.module(f"{name}.py", source.format(key=key, devices=devices) if "{key}" in source else source)
        points = {"torch.backends": {name: f"{name}:_autoload"}} if autoload else {}
        self.distribution(name, "2.13.0", points)

    def device_file(self, path: str) -> None:
        """A file under the recorded machine's root."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).touch()

    def deepspeed_asks_for_more(self, version: str) -> None:
        """A DeepSpeed whose interface has an abstract method that nobody has written."""
        found = importlib.util.find_spec("deepspeed")
        real, copy = Path(str(found and found.origin)).parent, self.path / "deepspeed"
        (copy / "accelerator").mkdir(parents=True)
        for entry in real.iterdir():
            if entry.name not in ("accelerator", "__pycache__"):
                (copy / entry.name).symlink_to(entry)
        for file in (real / "accelerator").glob("*.py"):
            shutil.copy(file, copy / "accelerator")
        more = "\n    @abc.abstractmethod\n    def quantum_entangle(self): ...\n"
        with (copy / "accelerator/abstract_accelerator.py").open("a") as interface:
            interface.write(more)
        for key in ("cpu", "npu"):
            with (copy / f"accelerator/{key}_accelerator.py").open("a") as own:
                own.write("\n    def quantum_entangle(self): ...\n")
        self.distribution("deepspeed", version)


class Situation:
    """A site, variables and a way to start programs; `outcome` runs the doctor and both programs side by side."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder)
        self._folder = folder

    def outcome(
        self, variables: dict[str, str], start: tuple[str, ...], patience: float
    ) -> tuple[list[dict[str, Any]], dict[str, list[Ended]]]:
        """The doctor's reports and what the programs ended with, by door; one for each rank."""
        seconds = f"{min(patience / 2, 120.0)}"  # a busy machine imports torch for longer than by default
        programs = {
            "doctor": ["diagnose.py", seconds],
            "accel_core": ["ask.py", "accel_core"],
            "deepspeed": ["ask.py", "deepspeed"],
        }
        running = {name: self._start(name, program, variables, start) for name, program in programs.items()}
        ended = {name: self._wait(process, patience) for name, process in running.items() if name != "doctor"}
        _, printed = self._wait(running["doctor"], 400.0)
        files = sorted(self._folder.glob("doctor.out*"))
        assert files, printed
        return (
            [json.loads(file.read_text()) for file in files],
            {name: self._read(name, *end) for name, end in ended.items()},
        )

    def _start(
        self, name: str, program: list[str], variables: dict[str, str], start: tuple[str, ...]
    ) -> Child:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
        command = [str(PROGRAMS / program[0]), program[1], str(self._folder / f"{name}.out")]
        typed = start == ("typed",)
        code = f"import sys; sys.argv = {command!r}\nexec(open(sys.argv[0]).read())\n"
        return Child(
            [sys.executable, "-i", "-q"] if typed else [sys.executable, *start, *command],
            env={
                **kept,
                "PYTHONPATH": str(self.site.path),
                "ACCEL_SYSROOT": str(self.site.root),
                "TORCH_EXTENSIONS_DIR": str(self._folder / "torch_extensions"),
                "OMP_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                **variables,
            },
            input=code if typed else "",
            stderr=STDOUT,
            cwd=self._folder,
            start_new_session=True,
        )

    def _wait(self, child: Child, seconds: float) -> tuple[str, str]:
        """How the process died, if it did, and what it printed."""
        try:
            done = child.wait(seconds)
        except TimeoutExpired:
            return "hangs", ""
        status = done.returncode
        return (f"died by {signal.Signals(-status).name}" if status < 0 else ""), done.stdout

    def _read(self, name: str, death: str, printed: str) -> list[Ended]:
        files = sorted(self._folder.glob(f"{name}.out*"))
        assert files or death, printed
        return [Ended(**json.loads(file.read_text())) for file in files] or [Ended(death=death)]


@pytest.fixture
def situation(tmp_path: Path) -> Situation:
    return Situation(tmp_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--situations", metavar="FILE", help="write the table of situations to this Markdown file"
    )


_HEAD = """# What the doctor says, and what the run then did

Written by `python -m pytest packages/accel-core/tests/situations --situations docs/results/situations.md`; each row is
a test. In each situation three processes (or as many as a launcher starts) ran side by side: `accel doctor --json`;
a program that asks `accel_core` before anything is imported; and one that imports torch and deepspeed and asks
`deepspeed.accelerator`. The doctor's word is right when both programs ended as it says. Devices and runtimes are
simulated (`accel sim` of accel-sim, or small packages of the test); torch {torch}, deepspeed {deepspeed} and the
processes are real.

| situation | doctor: problems and notes | both programs, or accel_core's | DeepSpeed's, where it differs | right |
| --- | --- | --- | --- | --- |
"""


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    target = config.getoption("--situations", default=None)
    if not target:
        return
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = [(dict(report.user_properties), report.passed) for report in reports if report.when == "call"]
    rows = sorted((row for row in rows if "number" in row[0]), key=lambda row: row[0]["number"])
    text = _HEAD.format(
        torch=importlib.metadata.version("torch"), deepspeed=importlib.metadata.version("deepspeed")
    )
    for row, passed in rows:
        cells = [
            row["situation"],
            row["decision"],
            row["accel_core"],
            row["deepspeed"],
            "yes" if passed else "no",
        ]
        text += "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |\n"
    right = sum(passed for _, passed in rows)
    Path(target).write_text(text + f"\n{right} of {len(rows)} right.\n", encoding="utf-8")
