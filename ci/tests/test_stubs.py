# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stubs say what the surfaces say: no more, and no less."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from ci.stubs import __main__ as stubs
from ci.stubs import signatures, surfaces
from ci.tests.repository import Repository

ROOT = Path(__file__).parents[2]
NPU = "torch_npu/npu/__init__.pyi"


def entry(kind: str = "function", **more: Any) -> dict[str, Any]:
    return {"kind": kind, **more}


NAMES = {
    "torch.npu.device_count": entry(signature="() -> int"),
    "torch.npu.synchronize": entry(signature="(device=None)"),
    "torch.npu.bare": entry(),
    "torch.npu.number": entry("attr"),
    "torch.npu.seldom": entry(signature="()", condition="in lazy mode"),
    "torch.npu.perhaps": entry("attr", unconfirmed=True),
    "torch.npu.Stream": entry("class", signature="(cls, device=None, **kwargs)"),
    "torch.npu.Stream.query": entry("method", signature="(self) -> bool"),
    "torch.npu.Stream.of": entry("method", signature="(cls, handle)"),
    "torch.npu.Stream.free": entry("method", signature="(message: str)"),
    "torch.npu.Stream.device": entry("property"),
    "torch.npu.FloatTensor": entry("class"),
    "torch.npu.Mode": entry("attr"),
    "torch.npu.Mode.fast": entry("attr"),
    "torch.npu.current_stream": entry(signature="(device: Optional[_device_t]=None) -> Stream"),
    "torch.npu.memory": entry("attr", signature="<module torch_npu.npu.memory>"),
    "torch.npu.memory.reserved": entry(signature="(device: Union[Device, int]=None) -> int"),
    "torch.npu.aclnn": entry("attr", signature="<module torch_npu.npu.aclnn>"),
    "torch_npu._C.Properties.name": entry("property"),
    "torch_npu.npu_swiglu": entry(signature="npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor"),
    "torch.ops.npu.npu_swiglu": entry(signature="npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor"),
    'torch.distributed backend "hccl"': entry("attr"),
}


@pytest.fixture
def npu(repository: Repository) -> Repository:
    """A checkout whose one surface with names is that of torch_npu."""
    for runtime in surfaces.RUNTIMES:
        for file in runtime.files:
            names = NAMES if file == "npu.json" else {}
            repository.write(f"shared/surfaces/{file}", json.dumps({"module": "x", "names": names}))
    return repository


def lines(repository: Repository, file: str) -> list[str]:
    return stubs.made(repository.root)[Path(file)].splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "def device_count() -> int: ...",
        "def synchronize(device: Any = ...) -> Any: ...",
        "def bare(*args: Any, **kwargs: Any) -> Any: ...",
        "number: Any",
        "perhaps: Any  # unconfirmed",
        "class Stream:",
        "    def __init__(self, device: Any = ..., **kwargs: Any) -> None: ...",
        "    def query(self) -> bool: ...",
        "    def of(cls, handle: Any) -> Any: ...",
        "    def free(message: str) -> Any: ...",
        "    def device(self) -> Any: ...",
        "FloatTensor: Any",
        "class Mode:",
        "    fast: Any",
        "def current_stream(device: int | str | torch.device | None = ...) -> Stream: ...",
        "from torch_npu.npu import memory as memory",
        "aclnn: Any",
    ],
)
def test_a_name_of_a_surface_is_in_its_stub(npu: Repository, line: str) -> None:
    assert line in lines(npu, NPU)


def test_modules_have_files_of_their_own(npu: Repository) -> None:
    assert "from torch_npu import npu as npu" in lines(npu, "torch_npu/__init__.pyi")
    assert "def npu_swiglu(input: torch.Tensor, dim: int = ...) -> Any: ..." in lines(
        npu, "torch_npu/__init__.pyi"
    )
    reserved = "def reserved(device: int | str | torch.device | None = ...) -> int: ..."
    assert reserved in lines(npu, "torch_npu/npu/memory.pyi")
    assert "class Properties:" in lines(npu, "torch_npu/_C.pyi")


def test_a_name_that_is_there_only_sometimes_has_to_be_asked_for(npu: Repository) -> None:
    assert not any("seldom" in line for line in lines(npu, NPU))


def test_what_a_later_surface_says_of_the_same_module_does_not_count(npu: Repository) -> None:
    first, second = ("intel_extension_for_pytorch.xpu", "intel_extension_for_pytorch")
    for file, module, name in [("ipex_xpu_branch", first, "gpu"), ("ipex_cpu_wheel", second, "cpu")]:
        names = {f"{first}.{name}": entry(), f"{second}.of_{name}": entry()}
        npu.write(f"shared/surfaces/{file}.json", json.dumps({"module": module, "names": names}))
    xpu = "\n".join(lines(npu, f"{first.replace('.', '/')}.pyi"))
    package = "\n".join(lines(npu, f"{second}/__init__.pyi"))
    assert ("def gpu" in xpu, "def cpu" in xpu) == (True, False)
    assert "def of_gpu" in package
    assert "def of_cpu" in package


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(a, /, b=1, *, c: int, **d)", "(a: Any, /, b: Any = ..., *, c: int, **d: Any) -> Any"),
        ("(*a) -> Tuple[int, int]", "(*a: Any) -> tuple[int, int]"),
        ("(a: List[torch.Tensor]) -> Tuple", "(a: list[torch.Tensor]) -> tuple[Any, ...]"),
        ("(a: Dict[str, Any]) -> Tuple[int, ...]", "(a: dict[str, Any]) -> tuple[int, ...]"),
        ("(a: 'Unknown') -> Optional[Unknown]", "(a: Any) -> Any"),
        ("(a: int=None)", "(a: int | None = ...) -> Any"),
        ("(a=<object at 0x1>)", signatures.UNKNOWN),
        ("(enable_timing=...)", signatures.UNKNOWN),
        ("x::y(Tensor? a, int[3] b, *, Tensor(c!)[] out) -> ()",
         "(a: torch.Tensor | None, b: list[int] | tuple[int, ...], *,"
         " out: list[torch.Tensor] | tuple[torch.Tensor, ...]) -> Any"),
        ("x::y(int[2] a=[0, 1], str b=\"x\") -> Tensor", "(a: list[int] | tuple[int, ...] = ..., b: str = ...) -> Any"),
        ("x::y(Stream a) -> Tensor", "(a: Any) -> Any"),
    ],
)  # fmt: skip
def test_a_signature_keeps_its_parameters_and_the_types_that_can_be_told(
    signature: str, expected: str
) -> None:
    assert signatures.function(signature) == [expected]


def test_each_overload_of_an_operator_is_there() -> None:
    both = signatures.function(
        "x::y(Tensor a) -> Tensor; x::y.out(Tensor a, *, Tensor(a!) out) -> Tensor(a!)"
    )
    assert both == ["(a: torch.Tensor) -> Any", "(a: torch.Tensor, *, out: torch.Tensor) -> Any"]


def test_a_stub_that_is_missing_changed_or_too_many_is_found(
    npu: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stubs.main(["write"], npu.root) == 0
    assert stubs.main(["check"], npu.root) == 0
    npu.write(f"shared/stubs/{NPU}", "x: int\n")
    npu.write("shared/stubs/torch_more.pyi")
    npu.remove("shared/stubs/torch_npu/npu/memory.pyi")
    assert stubs.main(["check"], npu.root) == 1
    found = capsys.readouterr().err
    wrong = {NPU: "another text", "torch_npu/npu/memory.pyi": "no such file", "torch_more.pyi": "a file that"}
    for file, why in wrong.items():
        assert f"shared/stubs/{file} is not up to date\n  found:    {why}" in found
    assert stubs.main(["write"], npu.root) == 0
    assert stubs.main(["check"], npu.root) == 0


def test_without_a_surface_nothing_is_made(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stubs.main(["write"], repository.root) == 2
    assert "no file shared/surfaces/" in capsys.readouterr().err


def test_the_stubs_here_are_up_to_date_and_offer_nothing_else() -> None:
    files = stubs.made(ROOT)
    assert stubs.check(ROOT, files) == []
    for path, text in files.items():
        bound = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        assert "__getattr__" not in bound, path
