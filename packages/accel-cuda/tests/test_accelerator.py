# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the class answers without opening a device, behind a mask and on ROCm; its ops, compiled or in plain torch."""

import importlib.util
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from accel_core.op_builder.source_builder import SourceBuilder
from accel_cuda import CUDA_Accelerator, accelerator, nvml, ranges, visible
from accel_cuda.kernels import loading
from accel_cuda.op_builder import toolkit
from accel_ops.device.driver_kernels import KernelsUnusable


@pytest.fixture
def cuda(library: Any, monkeypatch: pytest.MonkeyPatch) -> CUDA_Accelerator:
    """A machine with three GPUs, none of which may be opened."""

    def opened(*_: object) -> Any:
        raise AssertionError("a context is opened")

    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 3)
    for name in ("_lazy_init", "get_device_capability", "get_device_properties", "mem_get_info"):
        monkeypatch.setattr(torch.cuda, name, opened)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", opened, raising=False)
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    return CUDA_Accelerator()


def test_free_memory_is_nvml_s_until_there_is_a_context(cuda, monkeypatch):
    assert [cuda.available_memory(), cuda.available_memory(1)] == [1000, 2000]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-44444444-dddd")
    assert cuda.available_memory() == 400
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    assert cuda.available_memory(0) == 77


@pytest.mark.parametrize(
    ("device", "installed", "supported", "preferred"),
    [("0", True, True, False), ("1", True, True, True), ("1", False, True, False), ("2", True, False, False)],
)
def test_triton_follows_the_capability(device, installed, supported, preferred, cuda, monkeypatch):
    """Its grouped product is preferred where torch's is slow; no device is opened."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed else None)
    assert cuda.is_fp16_supported()
    assert cuda.is_triton_supported() is supported
    assert cuda.prefer_triton_grouped_mm() is preferred
    assert "triton" not in sys.modules


@pytest.mark.parametrize(
    ("major", "allowed", "fp16"), [(7, "0", True), (6, "0", False), (6, "1", True), (5, "1", False)]
)
def test_fp16_of_old_devices_is_the_user_s_choice(major, allowed, fp16, cuda, monkeypatch):
    monkeypatch.setattr(accelerator.nvml, "capability", lambda index: (major, 0))
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", allowed)
    assert cuda.is_fp16_supported() is fp16


def test_triton_stays_unimported_and_unsupported_on_rocm(cuda, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "_device_count_amdsmi", lambda: 2)
    rocm = CUDA_Accelerator()
    assert rocm.is_available()
    assert not rocm.is_triton_supported()
    assert not rocm.prefer_triton_grouped_mm()
    assert "triton" in rocm.traits
    assert "triton" not in sys.modules


@pytest.fixture
def other_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards of another maker: torch.cuda counts them and reports no capability, and pynvml is not NVIDIA's."""
    broken = SimpleNamespace(nvmlInit=lambda: None)
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    nvml._library.cache_clear()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)


def _no_capability(device: object = None) -> tuple[int, int]:
    raise RuntimeError("mcErrorNotSupported")


@pytest.mark.parametrize("reported", [_no_capability, lambda device=None: (0, 0)], ids=["raises", "zero"])
@pytest.mark.usefixtures("other_maker")
def test_card_without_a_capability_trains_and_says_what_is_unknown(reported, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", reported)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (77, 100))
    cuda = CUDA_Accelerator()
    assert (cuda.is_available(), cuda.device_name(), cuda.available_memory()) == (True, "cuda", 77)
    assert cuda.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    assert not cuda.is_triton_supported()
    assert not cuda.prefer_triton_grouped_mm()
    assert cuda.traits["triton"].reason.startswith("unknown: ")


@pytest.mark.usefixtures("other_maker")
def test_kernels_are_unusable_where_the_capability_is_unknown(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", _no_capability)
    with pytest.raises(KernelsUnusable, match="mcErrorNotSupported"):
        loading.load(lambda launch, device: None, 0)


def test_login_node_may_plan_for_every_type(library):
    cuda = CUDA_Accelerator()
    assert not cuda.is_available()
    assert cuda.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    assert not cuda.is_triton_supported()


def test_collectives_are_nccl_and_its_version_is_reported(monkeypatch):
    cuda = CUDA_Accelerator()
    assert cuda.communication_backend_name() == "nccl"
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    assert cuda.communication_backend_version() is None, "a torch that is built without NCCL"
    monkeypatch.setattr(torch._C, "_nccl_version", lambda: (2 << 32) | (27 << 16) | 3, raising=False)
    monkeypatch.setattr(torch._C, "_nccl_version_suffix", lambda: b"rc1", raising=False)
    assert cuda.communication_backend_version() == (2, 27, 3)


def test_host_memory_is_registered_with_the_driver(monkeypatch):
    calls: list[tuple[int, ...]] = []
    driver = SimpleNamespace(
        cudaHostRegister=lambda *arguments: calls.append(arguments) or 0,
        cudaHostUnregister=lambda *arguments: calls.append(arguments) or 1,
    )
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(
        torch.cuda, "check_error", lambda code: (_ for _ in ()).throw(RuntimeError) if code else None
    )
    cuda = CUDA_Accelerator()
    assert cuda.register_host_memory(4096, 100) is True
    with pytest.raises(RuntimeError):
        cuda.unregister_host_memory(4096)
    assert calls == [(4096, 100, 0), (4096,)]


def test_ranges_without_a_domain_or_the_package_are_torch_s(monkeypatch):
    """The suite has those in a domain."""
    seen: list[str] = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", seen.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: seen.append("pop"))
    for name in ("_domain", "_torch_has_ranges"):
        monkeypatch.setattr(ranges, name, getattr(ranges, name).__wrapped__)
    cuda = CUDA_Accelerator()
    for domain in ({}, {"domain": "elsewhere"}):
        cuda.range_push("step", **domain)
        cuda.range_pop(**domain)
    assert seen == ["step", "pop", "step", "pop"]


def test_unknown_builder_is_none_and_known_ones_say_what_they_lack():
    cuda = CUDA_Accelerator()
    assert cuda.get_op_builder("FlashAttentionBuilder") is None
    with pytest.raises(TypeError):  # flash attention of Megatron-DeepSpeed is then taken from its own package
        cuda.get_op_builder("FlashAttentionBuilder")().load()
    for name in ("FlashAttentionBuilder", "NotImplementedBuilder"):
        assert type(cuda.create_op_builder(name)).__name__ == "NotImplementedBuilder"
    assert cuda.get_op_builder("NotImplementedBuilder").__name__ == "NotImplementedBuilder"


# --- which device of NVML's stands behind an index: ordinals, UUIDs, MIG instances, empty and wrong masks


@pytest.mark.parametrize(
    ("value", "listed"),
    [
        ("0,2", [0, 2]),
        (" 1 , 0", [1, 0]),
        ("GPU-1111,GPU-3", ["GPU-1111", "GPU-3"]),
        ("MIG-4444,0", ["MIG-4444", 0]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,0", [1]),
        ("0,x,1", [0]),
        ("1,1", []),
        ("1gpu2,2ampere", [1, 2]),
        ("2, +3, -0", [2, 3, 0]),
        ("GPU-1111,GPU-1111", []),
    ],
)
def test_visible_devices_as_torch_reads_them(value, listed, monkeypatch):
    assert list(visible.CUDA.read(value).values()) == listed
    if value != "MIG-4444,0":  # which torch does not count
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert torch.cuda._parse_visible_devices() == listed


@pytest.mark.parametrize(
    ("value", "count", "used", "remarks"),
    [
        ("0,9,1", 1, ["0"], ["the runtime ignores 9, 1 of CUDA_VISIBLE_DEVICES=0,9,1"]),
        ("9", 0, [], ["the runtime ignores 9 of CUDA_VISIBLE_DEVICES=9"]),
        (
            "1,1",
            0,
            [],
            ["the runtime ignores 1 of CUDA_VISIBLE_DEVICES=1,1: a repeated entry hides all devices"],
        ),
        ("GPU-1,GPU-9", 1, ["GPU-1"], ["the runtime ignores GPU-9 of CUDA_VISIBLE_DEVICES=GPU-1,GPU-9"]),
        ("MIG-1", 1, ["MIG-1"], []),
        ("", 0, [], ["CUDA_VISIBLE_DEVICES is empty, which hides all devices"]),
    ],
)
def test_ignored_devices_are_named(value, count, used, remarks):
    assert visible.CUDA.used(value, count) == used
    assert visible.CUDA.remarks(count, {"CUDA_VISIBLE_DEVICES": value}) == remarks


def test_variable_of_the_container_is_named():
    """It names devices for the container, in which they have other numbers."""
    container = {"NVIDIA_VISIBLE_DEVICES": "1,2"}
    assert (
        visible.CUDA.remarks(2, container) == visible.CUDA.remarks(8, {"NVIDIA_VISIBLE_DEVICES": "all"}) == []
    )
    (remark,) = visible.CUDA.remarks(8, container)
    assert remark == "NVIDIA_VISIBLE_DEVICES=1,2 is for the container runtime, no process reads it"


@pytest.mark.parametrize(
    ("given", "first", "devices"),
    [
        ({}, "CUDA_VISIBLE_DEVICES", None),
        ({"CUDA_VISIBLE_DEVICES": "1,3"}, "CUDA_VISIBLE_DEVICES", [1, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "2,3"}, "HIP_VISIBLE_DEVICES", [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES", [1]),
        ({"HIP_VISIBLE_DEVICES": "1, 2"}, "HIP_VISIBLE_DEVICES", [1]),
        ({"HIP_VISIBLE_DEVICES": "1,1,0"}, "HIP_VISIBLE_DEVICES", [1, 0]),
        ({"HIP_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f7a"}, "HIP_VISIBLE_DEVICES", ["GPU-4b2c1a9f8d3e6f7a"]),
    ],
)
def test_rocm_reads_its_own_variable_first(given, first, devices, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    for name in visible.HIP.variables:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    written: dict[str, str] = {}
    cuda = CUDA_Accelerator()
    cuda.set_visible_devices_envs(written, [3])
    assert cuda.visible_devices_envs()[0] == first
    assert written == dict.fromkeys({first, "CUDA_VISIBLE_DEVICES"}, "3")
    decides = visible.HIP.decides()
    assert decides == (first if given else "")
    assert not decides or list(visible.HIP.read(given[decides]).values()) == devices


@pytest.mark.parametrize(
    ("mask", "index", "free"),
    [
        (None, 0, 1000),
        (None, 2, 3000),
        ("2,0", 0, 3000),
        ("GPU-11112222-bbbb", 0, 2000),
        ("GPU-33,GPU-11112", 1, 2000),
        ("MIG-44444444-dddd", 0, 400),
        ("", 0, None),
        ("1", 1, None),
        ("GPU-99999999", 0, None),
        ("GPU-1111", 0, None),  # it begins two UUIDs
        ("7", 0, None),
    ],
)
def test_free_memory_is_that_of_the_visible_device(mask, index, free, library, monkeypatch):
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    assert nvml.free_memory(index) == free


@pytest.mark.parametrize("installed", [True, False], ids=["no driver", "no package"])
def test_library_that_does_not_work_reports_nothing(installed, library, monkeypatch):
    library.works = False
    if not installed:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.free_memory(0) is None


# --- ops: DeepSpeed's sources where a compiler of this torch's CUDA is here, plain torch or a reason where not


PLAIN = {
    "FusedLambBuilder": "lamb",
    "InferenceBuilder": "rms_norm",
    "InferenceCoreBuilder": "rms_norm",
    "FPQuantizerBuilder": "dequantize",
}
#: With functions in plain torch and compiled ones.
MIXED = {
    "EvoformerAttnBuilder": "attention_bwd",
    "RandomLTDBuilder": "token_gather",
    "SpatialInferenceBuilder": "nhwc_bias_add",
}


@pytest.fixture
def cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`cuda_home("12.4.1")`: CUDA's toolkit of that version, with a torch that is built with 12.8."""
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
    """An op of which each function records that it ran."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: "kernel"


@pytest.fixture
def kernels(cuda_home: Any, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """What every op is compiled to."""
    cuda_home("12.8.0")
    compiled = Kernels()
    monkeypatch.setattr("accel_core.op_builder.source_builder.shutil.which", lambda tool: f"bin/{tool}")
    monkeypatch.setattr(SourceBuilder, "load", lambda self, verbose=True: compiled)
    return compiled


@pytest.mark.upstream
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("name", READ)
def test_kernels_do_not_get_what_they_misread(name):
    op, (types, functions) = CUDA_Accelerator().create_op_builder(name).load(), READ[name]

    def by_kernel(function, arguments):
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


@pytest.mark.parametrize(("version", "reported"), [("12.4.1", ""), ("", ""), ("11.8.0", "is CUDA 11.8.0")])
def test_compiler_has_to_be_of_torch_s_major_version(version, reported, cuda_home):
    cuda_home(version, variable="CUDA_PATH")
    lack = toolkit.lack()
    assert reported in lack
    assert bool(lack) is bool(reported)


def test_rocm_compiles_with_hipcc(cuda_home, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert "hipcc is not on PATH" in toolkit.lack()
    cuda_home("", "hipcc", "ROCM_HOME")
    assert toolkit.lack() == ""


@pytest.mark.parametrize("name", [*PLAIN, *MIXED])
def test_what_plain_torch_can_do_is_plain_torch_without_a_compiler(name, cuda_home):
    builder = CUDA_Accelerator().create_op_builder(name)
    assert builder.is_compatible()
    assert builder.reason.startswith("plain torch: nvcc is not on PATH")
    assert callable(getattr(builder.load(), {**PLAIN, **MIXED}[name]))


def test_quantizer_without_a_device_is_plain_torch():
    builder = CUDA_Accelerator().create_op_builder("QuantizerBuilder")
    assert builder.is_compatible()
    half = torch.ones(4, 8, dtype=torch.float16)
    data, parameters = builder.load().quantize(half, 4, 8, 0)
    assert (data.dtype, parameters.dtype) == (torch.int8, torch.float32)
    assert builder.reason == "plain torch: no device"


@pytest.mark.upstream
@pytest.mark.parametrize("name", PLAIN)
def test_ops_are_compiled_where_they_can_be(name, kernels):
    builder = CUDA_Accelerator().create_op_builder(name)
    assert "DeepSpeed's sources" in builder.reason
    assert builder.load() is kernels


@pytest.mark.upstream
@pytest.mark.parametrize("name", [*PLAIN, *MIXED])
def test_compilation_that_fails_is_logged_and_plain_torch_serves(name, kernels, monkeypatch, caplog):
    def fails(self, verbose=True):
        raise RuntimeError("ninja: build stopped")

    monkeypatch.setattr(SourceBuilder, "load", fails)
    with caplog.at_level(logging.WARNING, "accel_cuda"):
        builder = CUDA_Accelerator().create_op_builder(name)
        op = builder.load()
    assert {each for each in dir(builder.OP.plain()) if each[0] != "_"} <= set(dir(op))
    (reported,) = [text for text in caplog.messages if "ninja: build stopped" in text]
    assert reported.startswith(builder.name)


def test_gpudirect_storage_is_deepspeed_s_own_and_needs_libaio(monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda path: False)
    builder = CUDA_Accelerator().create_op_builder("GDSBuilder")
    assert not builder.is_compatible()
    assert "libaio.h" in builder.reason
