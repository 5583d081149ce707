# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops with DeepSpeed's kernels and plain torch behind them: who serves which tensors, where a compiler is pretended."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from typing_extensions import override

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import Implementation
from accel_core.op_builder.source_builder import SourceBuilder
from accel_testkit.suite.expect import expect
from accel_testkit.suite.holds import Holds

pytestmark = pytest.mark.tier("device")

#: Device type -> field of torch.version, variable of the toolkit's folder and compiler that its kernels need.
_COMPILERS = {"cuda": ("cuda", "CUDA_HOME", "nvcc")}
_RELEASE = "12.4"
_FROM_A_KERNEL = object()


@dataclass(frozen=True)
class _Kernels:
    """What DeepSpeed's kernels of an op read.

    types:     of the tensors that they read or write without asking for the type.
    functions: kinds of the arguments: `t` such a tensor, `a` another one, `n` a number.
    """

    types: tuple[torch.dtype, ...]
    functions: dict[str, str]


_KERNELS = {
    "EvoformerAttnBuilder": _Kernels(
        (torch.float16, torch.bfloat16), {"attention": "tttaata", "attention_bwd": "tttttaaaattt" + "aa"}
    ),
    "RandomLTDBuilder": _Kernels(
        (torch.float16, torch.bfloat16, torch.float32),
        {"token_gather": "tan", "token_scatter_": "ttan", "mask_gather_bert": "ta", "mask_gather_gpt": "tn"},
    ),
    "SpatialInferenceBuilder": _Kernels(
        (torch.float16,),
        {"nhwc_bias_add": "tt", "nhwc_bias_add_add": "ttt", "nhwc_bias_add_bias_add": "tttt"},
    ),
}


class _Compiled:
    """An op of which each function tells that it ran."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *arguments: _FROM_A_KERNEL


class _Warnings(logging.Handler):
    """Keeps the texts of warnings; pytest's own handler is no part of every run."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def compiler(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> pytest.MonkeyPatch:
    """A compiler for the device seems to be installed; what it makes is `_Compiled`."""
    field, home, program = _COMPILERS.get(accelerator.device_name(), ("", "", ""))
    if field:
        file = tmp_path / "bin" / program
        file.parent.mkdir()
        file.touch(0o755)
        (tmp_path / "version.json").write_text(json.dumps({"cuda": {"version": f"{_RELEASE}.1"}}))
        monkeypatch.setattr(torch.version, field, _RELEASE)
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setattr(
        SourceBuilder, "compatibility", lambda self: (True, "compiled from DeepSpeed's sources")
    )
    monkeypatch.setattr(SourceBuilder, "load", lambda self, verbose=True: _Compiled())
    return monkeypatch


def _builder(accelerator: DeepSpeedAccelerator, name: str) -> Any:
    """Return a builder whose ops DeepSpeed's kernels or plain torch serve; None if the vendor has no such builder."""
    builder = accelerator.create_op_builder(name)
    implementations = tuple(getattr(builder, "IMPLEMENTATIONS", ()))
    both = Implementation.UPSTREAM in implementations and Implementation.PLAIN in implementations
    return builder if both and isinstance(builder, SourceBuilder) and hasattr(builder, "plain") else None


def _arguments(kinds: str, dtype: torch.dtype) -> list[Any]:
    values = {"a": torch.zeros(4, 4, dtype=torch.int32), "n": 2}
    return [torch.zeros(4, 4, dtype=dtype) if kind == "t" else values[kind] for kind in kinds]


def _is_compiled(function: Any, arguments: list[Any]) -> bool:
    try:
        return function(*arguments) is _FROM_A_KERNEL
    except Exception:  # plain torch's, of arguments that are no problem
        return False


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", _KERNELS)
def test_kernels_get_the_tensors_that_they_read(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Compiled kernels serve contiguous tensors of their types; plain torch serves others, which they would misread."""
    builder, kernels = _builder(accelerator, name), _KERNELS[name]
    if builder is None:
        return
    loaded, holds = builder.load(verbose=False), Holds()
    for function, kinds in kernels.functions.items():
        served = getattr(loaded, function)
        for dtype in kernels.types:
            good = _arguments(kinds, dtype)
            holds[f"{function} of {dtype} by the kernel"] = _is_compiled(served, good)
            for position in (number for number, kind in enumerate(kinds) if kind == "t"):
                for what, other in (("strides", good[position].t()), ("float64", good[position].double())):
                    changed = [*good[:position], other, *good[position + 1 :]]
                    key = f"{function}, argument {position} with {what} among {dtype}, by plain torch"
                    holds[key] = not _is_compiled(served, changed)
        for dtype in {torch.float32, torch.bfloat16}.difference(kernels.types):
            holds[f"{function} of {dtype} by plain torch"] = not _is_compiled(
                served, _arguments(kinds, dtype)
            )
    holds.expect(
        builder.name,
        "give a kernel the contiguous tensors of the types that it reads, and all others to plain torch",
    )


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    "name", ["InferenceBuilder", "InferenceCoreBuilder", "FusedLambBuilder", "FPQuantizerBuilder"]
)
def test_kernels_serve_where_they_compile(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """An op that plain torch serves otherwise is DeepSpeed's own once its kernels can be compiled, and says so."""
    builder = _builder(accelerator, name)
    if builder is None:
        return
    compatible, why = builder.compatibility()
    expect(
        isinstance(builder.load(verbose=False), _Compiled)
        and compatible is True
        and "plain torch" not in why,
        f"{builder.name} is not the compiled op",
        found=f"{type(builder.load(verbose=False)).__name__}; compatibility {compatible}, {why!r}",
        expected="what SourceBuilder.load() returns, and its reason",
        do="ask whether the sources can be compiled before plain torch is taken",
    )


@pytest.mark.parametrize("name", [*_KERNELS, "InferenceBuilder", "InferenceCoreBuilder", "FusedLambBuilder"])
def test_kernels_that_do_not_compile_are_told(
    accelerator: DeepSpeedAccelerator, compiler: pytest.MonkeyPatch, name: str
) -> None:
    """Where the compilation fails plain torch serves, and a warning names the op and the error."""
    builder = _builder(accelerator, name)
    if builder is None:
        return
    usual = {name for name in dir(builder.plain().load(verbose=False)) if name[0] != "_"}

    def failing(self: Any, verbose: bool = True) -> Any:
        raise RuntimeError("ninja: build stopped")

    compiler.setattr(SourceBuilder, "load", failing)
    warnings = _Warnings()
    logging.getLogger().addHandler(warnings)
    try:
        loaded = builder.load(verbose=False)
    finally:
        logging.getLogger().removeHandler(warnings)
    reported = [text for text in warnings.texts if "ninja: build stopped" in text]
    lacking = sorted(usual.difference(dir(loaded)))
    expect(
        len(reported) == 1 and reported[0].startswith(builder.name) and not lacking,
        f"{builder.name} does not fall back to plain torch when its compilation fails",
        found=f"warnings {reported}; without {lacking}",
        expected="one warning that begins with the op's name and has the error, and the functions of plain torch",
        do="catch what the compilation raises, and log it",
    )
