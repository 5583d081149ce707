# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: DeepSpeed's sources where a compiler of this torch's CUDA is here, plain torch or a reason where not."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.op_builder.names import UPSTREAM
from accel_core.op_builder.source_builder import SourceBuilder
from accel_cuda import CUDA_Accelerator
from accel_cuda.op_builder import TABLE, toolkit

PLAIN = {
    "FusedLambBuilder": "lamb",
    "InferenceBuilder": "rms_norm",
    "InferenceCoreBuilder": "rms_norm",
    "FPQuantizerBuilder": "dequantize",
}
#: With functions in plain torch beside the compiled ones.
MIXED = {
    "EvoformerAttnBuilder": "attention_bwd",
    "RandomLTDBuilder": "token_gather",
    "SpatialInferenceBuilder": "nhwc_bias_add",
}


@pytest.fixture
def cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`cuda_home("12.4.1")`: CUDA's toolkit of that version, beside a torch that is built with 12.8."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    for usual in ("_USUAL", "_USUAL_ROCM"):
        monkeypatch.setattr(toolkit, usual, str(tmp_path / "nothing"))
    monkeypatch.setattr(toolkit.shutil, "which", lambda name: None)
    for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)

    def make(version: str, compiler: str = "nvcc", variable: str = "CUDA_HOME") -> Path:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / compiler).touch()
        if version:
            (tmp_path / "version.json").write_text(f'{{"cuda": {{"version": "{version}"}}}}')
        monkeypatch.setenv(variable, str(tmp_path))
        return tmp_path

    return make


HALVES = (torch.float16, torch.bfloat16)
#: Types that kernels read, and the arguments of each function: `t` a tensor whose type is not asked for, `a` another.
READ: dict[str, tuple[tuple[torch.dtype, ...], dict[str, str]]] = {
    "EvoformerAttnBuilder": (HALVES, {"attention": "tttaata", "attention_bwd": "tttttaaaatttaa"}),
    "RandomLTDBuilder": (
        (*HALVES, torch.float32),
        {"token_gather": "tan", "token_scatter_": "ttan", "mask_gather_bert": "ta", "mask_gather_gpt": "tn"},
    ),
    "SpatialInferenceBuilder": (
        (torch.float16,),
        {"nhwc_bias_add": "tt", "nhwc_bias_add_add": "ttt", "nhwc_bias_add_bias_add": "tttt"},
    ),
}


class Kernels:
    """An op of which each function tells that it ran."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: "kernel"


@pytest.fixture
def kernels(cuda_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops are compiled, to `Kernels`."""
    cuda_home("12.8.0")
    monkeypatch.setattr("accel_core.op_builder.source_builder.shutil.which", lambda tool: f"bin/{tool}")
    monkeypatch.setattr(SourceBuilder, "load", lambda self, verbose=True: Kernels())


@pytest.mark.upstream
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", READ)
def test_kernels_do_not_get_what_they_misread(name: str) -> None:
    op, (types, functions) = CUDA_Accelerator().create_op_builder(name).load(), READ[name]

    def by_kernel(function: str, arguments: list[Any]) -> bool:
        try:
            return bool(getattr(op, function)(*arguments) == "kernel")
        except Exception:  # plain torch's, of arguments that are no problem
            return False

    others: dict[str, Any] = {"a": torch.zeros(4, 4, dtype=torch.int32), "n": 2}
    for function, kinds in functions.items():
        for dtype in {*types, torch.float32, torch.bfloat16, torch.float64}:
            good = [torch.zeros(4, 4, dtype=dtype) if kind == "t" else others[kind] for kind in kinds]
            assert by_kernel(function, good) == (dtype in types), (function, dtype)
            for place in (place for place, kind in enumerate(kinds) if kind == "t"):
                for other in (good[place].t(), good[place].double()):
                    assert not by_kernel(function, [*good[:place], other, *good[place + 1 :]]), (
                        function,
                        place,
                    )


@pytest.mark.upstream
@pytest.mark.usefixtures("kernels")
def test_what_kernels_misread_is_plain_torch_s() -> None:
    rows, index = torch.ones(1, 3, 4), torch.zeros(1, 2).int()
    spatial = CUDA_Accelerator().create_op_builder("SpatialInferenceBuilder").load()
    assert torch.equal(spatial.nhwc_bias_add(rows.bfloat16(), rows[0, 0].bfloat16()), 2 * rows.bfloat16())
    tokens = CUDA_Accelerator().create_op_builder("RandomLTDBuilder").load()
    for other in (rows.double(), rows.transpose(1, 2)):
        assert torch.equal(tokens.token_gather(other, index, True), other[:, [0, 0]])


def test_every_op_of_deepspeed_has_a_builder() -> None:
    assert set(TABLE) == set(UPSTREAM)


@pytest.mark.parametrize(("version", "reported"), [("12.4.1", ""), ("", ""), ("11.8.0", "is CUDA 11.8.0")])
def test_compiler_has_to_be_of_torch_s_major_version(version: str, reported: str, cuda_home: Any) -> None:
    cuda_home(version, variable="CUDA_PATH")
    lack = toolkit.lack()
    assert reported in lack
    assert bool(lack) is bool(reported)


def test_rocm_compiles_with_hipcc(cuda_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert "hipcc is not on PATH" in toolkit.lack()
    cuda_home("", "hipcc", "ROCM_HOME")
    assert toolkit.lack() == ""


@pytest.mark.parametrize("name", [*PLAIN, *MIXED])
def test_what_plain_torch_can_do_is_plain_torch_without_a_compiler(name: str, cuda_home: Any) -> None:
    builder = CUDA_Accelerator().create_op_builder(name)
    assert builder.is_compatible()
    assert builder.reason.startswith("plain torch: nvcc is not on PATH")
    assert callable(getattr(builder.load(), {**PLAIN, **MIXED}[name]))


def test_quantizer_without_a_device_is_plain_torch() -> None:
    builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
    assert builder.is_compatible()
    half = torch.ones(4, 8, dtype=torch.float16)
    data, parameters = builder.load().quantize(half, 4, 8, 0)
    assert (data.dtype, parameters.dtype) == (torch.int8, torch.float32)
    assert builder.reason == "plain torch: no device"


@pytest.mark.upstream
@pytest.mark.parametrize("name", PLAIN)
def test_ops_are_compiled_where_they_can_be(
    name: str, cuda_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_home("12.8.0")
    compiled = SimpleNamespace()
    monkeypatch.setattr("accel_core.op_builder.source_builder.shutil.which", lambda tool: f"bin/{tool}")
    monkeypatch.setattr(SourceBuilder, "load", lambda self, verbose=True: compiled)
    builder = CUDA_Accelerator().create_op_builder(name)
    assert "DeepSpeed's sources" in builder.reason
    assert builder.load() is compiled


@pytest.mark.upstream
@pytest.mark.parametrize("name", [*PLAIN, *MIXED])
def test_compilation_that_fails_is_told_and_plain_torch_serves(
    name: str, cuda_home: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Any, verbose: bool = True) -> Any:
        raise RuntimeError("ninja: build stopped")

    cuda_home("12.8.0")
    monkeypatch.setattr("accel_core.op_builder.source_builder.shutil.which", lambda tool: f"bin/{tool}")
    monkeypatch.setattr(SourceBuilder, "load", fails)
    with caplog.at_level(logging.WARNING, "accel_cuda"):
        builder = CUDA_Accelerator().create_op_builder(name)
        op = builder.load()
    assert {each for each in dir(builder.plain().load()) if each[0] != "_"} <= set(dir(op))
    (reported,) = [text for text in caplog.messages if "ninja: build stopped" in text]
    assert reported.startswith(builder.name)


def test_gpudirect_storage_is_deepspeed_s_own_and_needs_libaio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    builder = CUDA_Accelerator().create_op_builder("GDSBuilder")
    assert not builder.is_compatible()
    assert "libaio.h" in builder.reason
