# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""mypy, with the settings and the stubs of this repository, finds a fault that is planted in a vendor package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.stubs import __main__ as stubs
from ci.stubs import inherited

pytest.importorskip("torch", reason="mypy reads torch's own annotations")

ROOT = Path(__file__).parents[2]
KEYS = ("npu", "mlu", "sdaa", "hpu", "xpu")
CHECKED = (*(f"packages/accel-{key}/src" for key in KEYS), "shared/stubs/inherited_calls")


def accelerator(key: str) -> str:
    module, _, variant = key.partition("/")
    return f"packages/accel-{module}/src/accel_{module}/{variant and variant + '/'}accelerator.py"


def attribute(module: str) -> str:
    return f'Module has no attribute "{module}"'


#: File, what is appended to it, and what mypy says of that.
PLANTED = [
    (accelerator("npu"), "torch_npu.npu.no_such_name()", attribute("no_such_name")),
    (accelerator("npu"), "torch_npu.npu.current_device(1)", 'Too many arguments for "current_device"'),
    (accelerator("npu"), "torch_npu.npu.set_device()", 'Missing positional argument "device"'),
    (accelerator("npu"), "torch_npu.npu_swiglu(dim=1)", 'Missing positional argument "input"'),
    (accelerator("npu"), "torch.npu.current_device()", attribute("npu")),
    (accelerator("mlu"), "torch_mlu.mlu.no_such_name()", attribute("no_such_name")),
    (accelerator("mlu"), "torch_mlu.mlu.current_device(1)", 'Too many arguments for "current_device"'),
    (accelerator("sdaa"), "torch_sdaa.sdaa.no_such_name()", attribute("no_such_name")),
    (accelerator("sdaa"), "torch_sdaa.no_such_name()", attribute("no_such_name")),
    (accelerator("hpu"), "hpu.no_such_name()", attribute("no_such_name")),
    (accelerator("hpu"), "hpu.synchronize(0)", 'Too many arguments for "synchronize"'),
    (accelerator("hpu"), "hpu.HPUGraph()", 'Module has no attribute "HPUGraph"'),
    (accelerator("xpu"), "torch.xpu.no_such_name()", attribute("no_such_name")),
    (accelerator("xpu"), "torch.xpu.current_device(1)", 'Too many arguments for "current_device"'),
    (accelerator("xpu/ipex"), "ipex.no_such_name()", attribute("no_such_name")),
    (accelerator("xpu/ipex"), "class C(XPU_Accelerator):\n        def device_count(self) -> int: return 1",
     'Method "device_count" is not using @override'),
    (accelerator("xpu/ipex"), "class D(XPU_Accelerator):\n        @override\n        def nothing(self) -> None: ...",
     'Method "nothing" is marked as an override'),
]  # fmt: skip


@dataclass(frozen=True)
class Checkout:
    """A copy of the vendor packages and the stubs beside links to everything else, and mypy's cache for it."""

    root: Path

    def make(self) -> None:
        for path in ("shared/stubs", *(f"packages/accel-{key}" for key in KEYS)):
            ignored = shutil.ignore_patterns("tests", "__pycache__", "*.egg-info")
            shutil.copytree(ROOT / path, self.root / path, ignore=ignored)
        for package in (ROOT / "packages").iterdir():
            if not (self.root / "packages" / package.name).exists():
                (self.root / "packages" / package.name).symlink_to(package)
        (self.root / "shared/surfaces").symlink_to(ROOT / "shared/surfaces")
        shutil.copy(ROOT / "pyproject.toml", self.root)

    def edit(self, file: str, old: str, new: str) -> None:
        text = (self.root / file).read_text(encoding="utf-8")
        assert old in text
        (self.root / file).write_text(text.replace(old, new), encoding="utf-8")

    def append(self, file: str, lines: str) -> None:
        with (self.root / file).open("a", encoding="utf-8") as opened:
            opened.write(lines)

    def mypy(self) -> str:
        """What mypy prints."""
        command = [sys.executable, "-m", "mypy", f"--cache-dir={self.root / 'cache'}", *CHECKED]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MYPY")}
        return subprocess.run(
            command, cwd=self.root, env=clean, capture_output=True, text=True, check=False
        ).stdout


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, str]:
    """The copies as they are, and what mypy says of them."""
    checkout = Checkout(tmp_path_factory.mktemp("checkout"))
    checkout.make()
    return checkout, checkout.mypy()


@pytest.fixture(scope="module")
def found(sound: tuple[Checkout, str]) -> str:
    """What mypy says of the copies with every fault planted."""
    checkout, _ = sound
    for number, (file, line, _) in enumerate(PLANTED):
        checkout.append(file, f"\n\ndef _planted_{number}() -> None:\n    {line}\n")
    # A name that the module lacks is asked for by core once the override is gone.
    override = "    @override\n    def empty_cache(self) -> None:\n        pass"
    checkout.edit(accelerator("hpu"), override, "    def other(self) -> None:\n        pass")
    # A module that is given as it is has all that core's protocol asks for.
    checkout.edit("shared/stubs/torch_mlu/mlu/__init__.pyi", "def initial_seed(", "def first_seed(")
    for path, text in inherited.files(checkout.root).items():
        (checkout.root / stubs.FOLDER / path).write_text(text, encoding="utf-8")
    return checkout.mypy()


def test_mypy_passes_what_is_sound(sound: tuple[Checkout, str]) -> None:
    assert "Success: no issues found" in sound[1]


@pytest.mark.parametrize(("file", "line", "message"), PLANTED, ids=[line[:40] for _, line, _ in PLANTED])
def test_a_planted_call_is_an_error(found: str, file: str, line: str, message: str) -> None:
    assert [row for row in found.splitlines() if row.startswith(file) and message in row], found


def test_a_name_that_core_asks_for_is_missed_once_its_override_is_gone(found: str) -> None:
    rows = [row for row in found.splitlines() if row.startswith("shared/stubs/inherited_calls/accel_hpu.py")]
    assert len(rows) == 1
    assert attribute("empty_cache") in rows[0]


def test_a_module_that_lacks_a_name_of_the_protocol_is_not_taken(found: str) -> None:
    rows = [row for row in found.splitlines() if row.startswith(accelerator("mlu"))]
    assert [row for row in rows if 'Argument "device_module"' in row], found
    assert [row for row in rows if "initial_seed" in row], found
