# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environments made to order: a bare Python, and packages that a test writes beside it."""

import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import accel_core
from accel_core import processes
from accel_core.vendor import INTERFACE_VERSION

from ..site_packages import SitePackages

FAKES = Path(__file__).with_name("fakes")
#: Import names of what accel-core needs; everything else of this interpreter stays out of sight.
NEEDED = ("packaging", "typing_extensions", "wrapt", "psutil", "rich", "pygments", "markdown_it", "mdurl")
#: Nothing of these may leak in from the shell that runs the tests.
OURS = ("ACCEL_", "DS_ACCELERATOR", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH", "COLUMNS", "NO_COLOR")

VENDOR = """
from accel_core.interface import DeepSpeedAccelerator
from accel_core.vendor import Confirmation, Evidence, Vendor

VENDOR = Vendor({arguments})


def evidence():
    return Evidence(True, True if {key!r} == "cpu" else None, "the runtime of {key} is installed")


def confirm():
    import torch

{confirm}


methods = {{name: lambda self, *a, **k: None for name in DeepSpeedAccelerator.__abstractmethods__}}
methods |= {{"device_name": lambda self, i=None: "{key}", "__module__": __name__}}
Toy = type("Toy", (DeepSpeedAccelerator,), methods)
"""


#: What DeepSpeed gives where accel_core is not joined to it.
OWN_ACCELERATOR = """
class Own_Accelerator:
    _name = "own"

def get_accelerator():
    return Own_Accelerator()
"""


@dataclass(frozen=True)
class Result:
    """What a command ended with."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.out)
        return report

    def remarks(self, kind: str = "problems") -> dict[str, dict[str, str]]:
        return {remark["code"]: remark for remark in self.report[kind]}

    def states(self) -> dict[str, str]:
        """State of every candidate that somebody installed."""
        return {c["label"]: c["state"] for c in self.report["candidates"] if c["state"] != "not-installed"}

    def candidate(self, label: str) -> dict[str, Any]:
        return next(candidate for candidate in self.report["candidates"] if candidate["label"] == label)


class Environment(SitePackages):
    """A site folder with fake packages, and the bare Python that sees it."""

    def __init__(self, python: Path, path: Path) -> None:
        super().__init__(path)
        self.python = python

    def torch(self, version: str = "2.13.0") -> None:
        """The fake torch."""
        shutil.copytree(FAKES / "torch", self.path / "torch")
        (self.path / "torch/version.py").write_text(
            f"__version__ = {version!r}\ncuda = None\nhip = None\nxpu = None\n"
        )
        self.distribution("torch", version)

    def deepspeed(self, version: str) -> None:
        """A deepspeed that has an accelerator of its own, and nothing else."""
        self.module("deepspeed/__init__.py", "")
        self.module("deepspeed/accelerator/__init__.py", OWN_ACCELERATOR)
        self.distribution("deepspeed", version)

    def backend(self, name: str, body: str, package: str = "torch-sick", version: str = "2.13.0") -> None:
        """A package whose backend extension torch calls."""
        self.module(f"{name}.py", f"def autoload():\n    {body}\n")
        self.distribution(package, version, {"torch.backends": {name: f"{name}:autoload"}})

    def vendor(
        self, key: str, priority: int = 2000, confirm: str = "", devices: int = 2, **more: Any
    ) -> None:
        """A vendor package accel-<key>; `confirm` is the body of that function ahead of its answer."""
        module, package = f"vendor_{key}{more.get('variant', '')}", more.pop("package", f"accel-{key}")
        requires = more.pop("requires_dist", ())
        fields = {
            "key": key,
            "interface": INTERFACE_VERSION,
            "accelerator": f"{module}:Toy",
            "probe": module,
            "priority": priority,
            "distribution": package,
            "requires": f"torch_{key}",
            **more,
        }
        body = f"{dedent(confirm)}\nreturn Confirmation({devices}, 'the runtime counts {devices}')"
        arguments = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        self.module(f"{module}.py", VENDOR.format(arguments=arguments, key=key, confirm=indented))
        self.distribution(package, "1.0", {"accel.vendors": {key: f"{module}:VENDOR"}}, requires)

    def cpu(self) -> None:
        """A pretend accel-cpu."""
        self.vendor("cpu", 0, devices=1)

    def complete(self, deepspeed: str = "0.19.8") -> "Environment":
        """Torch, deepspeed and the CPU."""
        self.torch()
        self.deepspeed(deepspeed)
        self.cpu()
        return self

    def python_module(self, name: str, **variables: str) -> Result:
        """A module of the site folder, run as a program."""
        return run(self.python, "-m", name, PYTHONPATH=str(self.path), **variables)

    def run(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Result:
        """`accel …` in this environment."""
        return run(
            self.python, "-m", "accel_core.cli", *arguments, cwd=cwd, PYTHONPATH=str(self.path), **variables
        )

    def doctor(self, *arguments: str, cwd: Path | None = None, **variables: str) -> Result:
        """`accel doctor --json …` in this environment; what does not hang has a minute, on a busy machine too."""
        patience = () if "--timeout" in arguments else ("--timeout", "60")
        of_torch = {"TORCH_EXTENSIONS_DIR": str(self.path / "extensions"), **variables}
        return self.run("doctor", "--json", *patience, *arguments, cwd=cwd, **of_torch)

    def start(self, *arguments: str, stdout: int, stderr: int, **variables: str) -> subprocess.Popen[bytes]:
        """`accel …` in this environment, which a test watches; a terminal, if it has one, is 100 columns wide."""
        environment = {**os.environ, "PYTHONPATH": str(self.path), "TERM": "xterm", "COLUMNS": "100"}
        command = [self.python, "-m", "accel_core.cli", *arguments]
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment | variables)


def run(python: Path | str, *arguments: str, cwd: Path | None = None, **variables: str) -> Result:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    command = [str(python), *arguments]
    done = processes.run(command, 300, env={**kept, **variables}, cwd=cwd)
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has accel-core and what it needs, and no torch."""
    root = tmp_path_factory.mktemp("bare")
    venv.create(root, symlinks=True, with_pip=False)
    site = next(root.glob("lib/python*/site-packages"))
    (site / "accel_core").symlink_to(Path(accel_core.__file__).parent)
    for name in NEEDED:
        module = importlib.import_module(name)
        (site / name).symlink_to(Path(module.__file__ or "").parent)
    return root / "bin/python"


@pytest.fixture
def bare(bare_python: Path, tmp_path: Path) -> Environment:
    """accel-core alone."""
    site = tmp_path / "site"
    site.mkdir()
    environment = Environment(bare_python, site)
    points = {"torch.backends": {"accel_core": "accel_core.activate:autoload"}}
    environment.distribution("accel-core", importlib.metadata.version("accel-core"), points, ("rich>=13",))
    environment.distribution("rich", importlib.metadata.version("rich"))
    return environment


@pytest.fixture
def healthy(bare: Environment) -> Environment:
    """accel-core with torch, deepspeed and the CPU."""
    return bare.complete()


@pytest.fixture
def odd(tmp_path: Path) -> Environment:
    """The interpreter of the tests, with the package accel-odd."""
    site = tmp_path / "site"
    shutil.copytree(FAKES / "odd", site)
    environment = Environment(Path(sys.executable), site)
    environment.distribution("accel-odd", entry_points={"accel.vendors": {"odd": "odd_vendor:VENDOR"}})
    return environment
