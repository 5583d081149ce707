# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The errors that users meet most: each says what to do, and doing what it says gives an accelerator."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import accel_core
from accel_core import cascade
from accel_core.errors import AccelError, InterfaceMismatch, NotAnAccelerator

REPOSITORY = Path(__file__).resolve().parents[4]
_NO_RUNTIME = "return Evidence(False, None, 'torch_npu is not installed')"

#: What is installed, the environment, and the accelerator that the advice leads to.
MISHAPS: dict[str, tuple[dict[str, dict[str, Any]], dict[str, str], str]] = {
    "an unknown name": ({}, {"DS_ACCELERATOR": "gpu"}, "cpu"),
    "an empty name": ({}, {"DS_ACCELERATOR": ""}, "cpu"),
    "no package": ({}, {"DS_ACCELERATOR": "npu"}, "npu"),
    "no runtime": ({"npu": {"evidence": _NO_RUNTIME}}, {"DS_ACCELERATOR": "npu"}, "cpu"),
    "a broken runtime": ({"npu": {"confirm": "raise OSError('x')"}}, {"DS_ACCELERATOR": "npu"}, "cpu"),
    "a tie": ({"npu": {}, "toy": {"priority": 700}}, {}, "npu"),
    "strict, only a CPU": ({}, {"ACCEL_STRICT": "1"}, "cpu"),
    "strict, a broken one": ({"npu": {"confirm": "raise OSError('x')"}, "mlu": {}}, {"ACCEL_STRICT": "1"}, "mlu"),
    "a switch without a meaning": ({}, {"ACCEL_STRICT": "perhaps"}, "cpu"),
    "everything skipped": ({}, {"ACCEL_SKIP": "cpu"}, "cpu"),
}  # fmt: skip


@pytest.mark.parametrize(("packages", "variables", "leads_to"), MISHAPS.values(), ids=MISHAPS)
def test_the_advice_followed_literally_gives_an_accelerator(
    machine: Any, monkeypatch: Any, packages: dict[str, Any], variables: dict[str, str], leads_to: str
) -> None:
    for key, fields in packages.items():
        machine.install(key, **fields)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AccelError) as error:
        accel_core.get_accelerator()
    follow(error.value.do, machine, monkeypatch)
    machine.forget()
    assert machine.select().device_name() == leads_to


def follow(advice: str, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what can be typed of it: the packages to install, else the first variable that it names."""
    for package in re.findall(r"\./packages/accel-(\w+)", advice):
        assert (REPOSITORY / f"packages/accel-{package}/pyproject.toml").is_file()
        if package not in ("cpu", "core", "host"):
            machine.install(package)
            return
    typed = re.search(r"\b(?:(unset|out of) )?([A-Z]+_[A-Z_]+)(?:=(\w+))?", advice)
    assert typed is not None, advice
    removed, name, value = typed.groups()
    if removed or value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)


def test_the_class_in_place_of_an_object_is_mended_by_what_the_error_says(
    machine: Any, accelerator: Any
) -> None:
    with pytest.raises(NotAnAccelerator) as error:
        accel_core.set_accelerator(type(accelerator))
    assert "add ()" in error.value.expected
    accel_core.set_accelerator(type(accelerator)())


def test_a_key_in_place_of_an_object_is_mended_by_what_the_error_says(machine: Any) -> None:
    with pytest.raises(NotAnAccelerator) as error:
        accel_core.set_accelerator("cpu")  # type: ignore[arg-type]
    typed = re.search(r"`from (\S+) import (\S+)`, then \2\(\)", error.value.do)
    assert typed is not None, error.value.do
    assert "DS_ACCELERATOR=cpu before" in error.value.do
    with accel_core.using(getattr(importlib.import_module(typed[1]), typed[2])()) as made:
        assert made.device_name() == "cpu"


# ------------------------------------------------------------------------------------ what to install


def test_the_command_to_install_names_the_checkout_while_nothing_is_on_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where = "(in a checkout of accel: its packages are on no index yet)"
    assert cascade.pip_install("accel-core", options="-U") == f"pip install -U ./packages/accel-core {where}"
    assert cascade.pip_install("torch>=2.14") == "pip install 'torch>=2.14'"
    assert cascade.pip_install("their-card") == "pip install their-card"
    monkeypatch.setattr(cascade, "ON_INDEX", True)
    assert cascade.pip_install("accel-npu") == "pip install accel-npu"


def test_a_vendor_package_comes_with_the_one_that_it_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "_installed", lambda name: False)
    command = cascade.pip_install("accel-npu")
    assert command.startswith("pip install ./packages/accel-ops ./packages/accel-npu (")


def test_pip_accepts_the_command() -> None:
    command = cascade.pip_install("accel-mlu").partition(" (")[0]
    dry = ["--dry-run", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), *dry],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_message_says_pip_install_of_ours_by_itself() -> None:
    ours = re.compile(r"pip install (-\S+ )*accel-(core|cpu|cuda|xpu|npu|hpu|mlu|sdaa|mps|host)\b")
    for file in (REPOSITORY / "packages/accel-core/src/accel_core").rglob("*.py"):
        if file.name != "cascade.py":
            assert not ours.search(file.read_text(encoding="utf-8")), file


# ------------------------------------------------------------------- a program that imports a package


def package(machine: Any, submodule: str) -> None:
    machine.distribution("accel-newer", "")
    folder = machine.site / "accel_newer"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from accel_core.vendor import lazy_exports\n__getattr__ = lazy_exports(__name__, {'New': 'part'})\n"
    )
    (folder / "part.py").write_text(submodule)


@pytest.mark.parametrize(
    "wanted",
    ["from accel_core.vendor import Telepathy", "import accel_core.telepathy"],
    ids=["name", "module"],
)
def test_a_package_that_needs_a_newer_core_says_so_when_a_program_imports_it(
    machine: Any, four_parts: Any, wanted: str
) -> None:
    package(machine, f"{wanted}\n")
    with pytest.raises(ImportError) as error:
        from accel_newer import New  # noqa: F401
    assert isinstance(error.value, InterfaceMismatch)
    assert "pip install --upgrade ./packages/accel-core" in four_parts(error.value).do
    assert "elepathy" in error.value.found


def test_any_other_import_that_fails_is_left_as_it_is(machine: Any) -> None:
    package(machine, "import torch_newer\n")
    with pytest.raises(ModuleNotFoundError, match="torch_newer"):
        from accel_newer import New  # noqa: F401
