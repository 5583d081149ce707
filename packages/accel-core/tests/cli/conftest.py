# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Environments made to order: a bare Python, and packages that a test adds to it."""

import importlib
import importlib.metadata
import json
import os
import pty
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import accel_core
from accel_core import processes

from ..site_packages import SitePackages

FAKES = Path(__file__).with_name("fakes")
#: Import names of what accel-core needs; everything else of this interpreter stays out of sight.
NEEDED = ("packaging", "typing_extensions", "wrapt", "psutil", "rich", "pygments", "markdown_it", "mdurl")
#: Nothing of these may leak in from the shell that runs the tests.
OURS = ("ACCEL_", "DS_ACCELERATOR", "TORCH_DEVICE_BACKEND_AUTOLOAD", "PYTHONPATH", "COLUMNS", "NO_COLOR")

PROGRAM = """
import sys
from accel_core.cli.main import main
try:
    sys.exit(main({arguments}))
finally:
    print(*sorted({{"torch", "deepspeed", "rich"}} & sys.modules.keys()), file=sys.stderr)
"""
#: An accelerator of the fake torch.
ACCELERATOR = """
from accel_core.interface import DeepSpeedAccelerator

class Fake_Accelerator(DeepSpeedAccelerator):
    def device_name(self, device_index=None): return {key!r}

Fake_Accelerator.__abstractmethods__ = frozenset()
"""
#: An accelerator of the real one: the CPU, with the ops of fakes/odd_builders.py.
ODD = """
from accel_core.device import TorchDeviceAccelerator
from odd_builders import TABLE

class Fake_Accelerator(TorchDeviceAccelerator):
    def __init__(self): super().__init__("cpu", collectives="gloo", ops=TABLE)

Fake_Accelerator.__abstractmethods__ = frozenset()
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
        self.module("torch/__init__.py", (FAKES / "torch.py").read_text())
        self.module("torch/version.py", f"__version__ = {version!r}\ncuda = hip = xpu = None\n")
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
        """A vendor package accel-<key>; `confirm` is what that function does ahead of its answer."""
        counts = (
            f"import torch; {confirm}\n    return Confirmation({devices}, 'its runtime counts {devices}')"
        )
        self.install(key, priority=priority, confirm=counts, accelerator=ACCELERATOR, **more)

    def cpu(self) -> None:
        """A pretend accel-cpu."""
        self.vendor("cpu", 0, devices=1)

    def complete(self, deepspeed: str = "0.19.8") -> "Environment":
        """Torch, deepspeed and the CPU."""
        self.torch()
        self.deepspeed(deepspeed)
        self.cpu()
        return self

    def python_module(self, name: str, *arguments: str, cwd: Path | None = None, **variables: str) -> Result:
        """A module, run as a program; one of the site folder, or of what is installed."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        environment = {**kept, "PYTHONPATH": str(self.path), **variables}
        done = processes.run([str(self.python), "-m", name, *arguments], 300, env=environment, cwd=cwd)
        return Result(done.returncode, done.stdout, done.stderr)

    def imports(self, *arguments: str, **variables: str) -> tuple[Result, list[str]]:
        """`accel …`, and the large modules that it has imported."""
        self.module("program.py", PROGRAM.format(arguments=arguments))
        result = self.python_module("program", **variables)
        return result, result.err.splitlines()[-1].split()

    def run(self, *arguments: str, **more: Any) -> Result:
        """`accel …` in this environment."""
        return self.python_module("accel_core.cli", *arguments, **more)

    def doctor(self, *arguments: str, **more: Any) -> Result:
        """`accel doctor --json …` in this environment; what does not hang has a minute, on a busy machine too."""
        patience = () if "--timeout" in arguments else ("--timeout", "60")
        more = {"TORCH_EXTENSIONS_DIR": str(self.path / "extensions"), **more}
        return self.run("doctor", "--json", *patience, *arguments, **more)

    def start(self, *arguments: str, stdout: int, stderr: int, **variables: str) -> subprocess.Popen[bytes]:
        """`accel …` in this environment, which a test watches; a terminal, if it has one, is 100 columns wide."""
        environment = {**os.environ, "PYTHONPATH": str(self.path), "TERM": "xterm", "COLUMNS": "100"}
        command = [self.python, "-m", "accel_core.cli", *arguments]
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment | variables)


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
    site.mkdir()
    environment = Environment(Path(sys.executable), site)
    environment.module("odd_builders.py", (FAKES / "odd_builders.py").read_text())
    crash = "import os; os.getenv('ODD_CRASH') and os.abort()"
    environment.install("odd", priority=1, confirm=f"{crash}; return Confirmation(1, 'one')", accelerator=ODD)
    return environment


@contextmanager
def terminal(
    start: Callable[[int], "subprocess.Popen[bytes]"],
) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[str], str]]]:
    """Start a program on a terminal; also yield a function that returns what it shows up to a text."""
    ours, theirs = pty.openpty()

    def read_until(text: str) -> str:
        """Return what is shown up to the text; up to the end without one."""
        shown = ""
        while not text or text not in shown:
            try:
                data = os.read(ours, 4096)
            except OSError:  # Linux's end of a terminal
                data = b""
            if not data:
                break
            shown += data.decode("utf-8", "replace")
        return shown

    with start(theirs) as process:
        os.close(theirs)
        yield process, read_until
    os.close(ours)
