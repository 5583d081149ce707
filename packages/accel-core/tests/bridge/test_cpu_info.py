# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's CPU optimizers get the CPU's maker at once; everybody else gets py-cpuinfo's own answer."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_core.upstream import contract, cpu_info

REAL = {"arch": "X86_64", "vendor_id_raw": "Maker of py-cpuinfo"}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A `cpuinfo` that has been patched."""
    monkeypatch.setattr(contract, "is_registered", lambda: True)
    monkeypatch.setattr(cpu_info, "_maker", lambda: "Maker")
    module = types.ModuleType("cpuinfo")
    module.get_cpu_info = lambda: dict(REAL)  # type: ignore[attr-defined]
    cpu_info.patch_cpu_info(module)
    return module


def asked_by(caller: str, module: types.ModuleType) -> Any:
    names: dict[str, Callable[[], Any]] = {}
    exec("def ask(cpuinfo): return cpuinfo.get_cpu_info()", {"__name__": caller}, names)
    ask: Callable[..., Any] = names["ask"]
    return ask(module)


@pytest.mark.parametrize("caller", ["deepspeed.ops.adam.cpu_adam", "deepspeed.ops.lion.cpu_lion"])
def test_an_optimizer_gets_the_maker(module: types.ModuleType, caller: str) -> None:
    assert asked_by(caller, module) == {"vendor_id_raw": "Maker"}


@pytest.mark.parametrize("caller", ["deepspeed.ops.op_builder.builder", "__main__"])
def test_everybody_else_gets_the_whole_answer(module: types.ModuleType, caller: str) -> None:
    assert asked_by(caller, module) == REAL


def test_a_system_that_does_not_name_the_maker_asks_py_cpuinfo(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_info, "_maker", lambda: "")
    assert asked_by("deepspeed.ops.adam.cpu_adam", module) == REAL


@pytest.mark.parametrize(
    ("text", "maker"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\nvendor_id: Other\n", "GenuineIntel"),
        ("vendor_id :\nvendor : HiSilicon: yes\n", "HiSilicon: yes"),
        ("processor: 0\nBogoMIPS: 1\n", ""),
        (None, ""),
    ],
)
def test_the_maker_is_the_first_one_that_the_system_names(
    text: str | None, maker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu_info, "_PROC", tmp_path / "cpuinfo")
    assert cpu_info._maker() == maker


def test_a_module_of_that_name_with_other_functions_is_left_alone() -> None:
    module = types.ModuleType("cpuinfo")
    cpu_info.patch_cpu_info(module)
    assert not hasattr(module, "get_cpu_info")


_CONSTRUCT = """
    import cpuinfo, torch, subprocess
    {first}
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    started = []
    popen = subprocess.Popen.__init__
    def watched(self, command, *arguments, **options):
        started.append("cpuinfo" in str(command))
        popen(self, command, *arguments, **options)
    subprocess.Popen.__init__ = watched
    optimizer = DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(4))])
    print(any(started), optimizer.cpu_vendor == cpuinfo.get_cpu_info()["vendor_id_raw"].lower())
"""


@pytest.mark.upstream
@pytest.mark.parametrize("first", ["", "import deepspeed"])
def test_deepspeed_constructs_its_optimizer_without_py_cpuinfo_s_process(children: Any, first: str) -> None:
    out = children.run(_CONSTRUCT.format(first=first), DS_ACCELERATOR="cpu").out.splitlines()
    assert out[-1] == "False True"


@pytest.mark.upstream
def test_without_the_bridge_py_cpuinfo_is_left_alone(children: Any) -> None:
    program = "import cpuinfo, torch, deepspeed; print(hasattr(cpuinfo.get_cpu_info, '__wrapped__'))"
    assert children.run(program, ACCEL_BRIDGE="0", DS_ACCELERATOR="cpu").out.split()[-1] == "False"
    assert children.run(program, DS_ACCELERATOR="cpu").out.split()[-1] == "True"
