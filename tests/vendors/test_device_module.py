# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A runtime module with the nine names of PyTorch's torch_openreg uses torch.accelerator for the others."""

from shared.children import on_device

COMPARE = """
import torch, torch_npu
from types import SimpleNamespace
from accel_core.device import TorchDeviceAccelerator
from accel_core.errors import FunctionNotImplemented, InvalidDevice
from accel_core.op_builder import OpTable

NINE = ("is_available", "device_count", "current_device", "set_device", "get_rng_state", "set_rng_state",
        "manual_seed", "manual_seed_all", "initial_seed")
INDEXED = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "available_memory",
           "total_memory")
WAITING = ("synchronize", "reset_peak_memory_stats", "current_stream", "memory_stats")

class Accelerator(TorchDeviceAccelerator):
    def visible_devices_envs(self):
        return []

def made(module=None):
    return Accelerator("npu", collectives="hccl", ops=OpTable("none", {}), device_module=module)

def raised(error, call, *arguments):
    try:
        call(*arguments)
    except error as caught:
        return str(caught)
    raise AssertionError(f"{call} raised nothing")

whole, bare = made(), made(SimpleNamespace(**{name: getattr(torch.npu, name) for name in NINE}))
assert whole.device_module is torch.npu, "a complete module is not wrapped"
held = [torch.empty(1 << 20, device=f"npu:{index}") for index in (0, 1, 1)]
for current in (1, 0):
    bare.set_device(current)
    for name in INDEXED:
        for index in ((), (None,), (0,), (1,), ("npu:1",), (torch.device("npu", 1),)):
            assert getattr(bare, name)(*index) == getattr(whole, name)(*index), (name, index)
    assert bare.current_stream() == torch.accelerator.current_stream()
    assert bare.current_stream().device_index == current
for name in (*INDEXED, *WAITING):
    for index in (2, -1, "npu:2"):
        assert "index" in raised(InvalidDevice, getattr(bare, name), index)
del held
bare.empty_cache()
assert bare.memory_reserved(1) == 0
peak = "allocated_bytes.all.peak"
bare.reset_peak_memory_stats(1)
assert bare.memory_stats(1)[peak] == whole.memory_stats(1)[peak] == 0

for index in (0, 1):
    default, other = bare.current_stream(index), bare.Stream(device=f"npu:{index}")
    assert default != other
    with bare.stream(other), bare.stream(None):
        assert bare.current_stream(index) == other
        assert bare.current_device() == index
    assert bare.current_stream(index) == default
assert bare.current_device() == 0
start, end = bare.Event(enable_timing=True), bare.Event(enable_timing=True)
start.record()
end.record(bare.current_stream())
bare.synchronize()
assert end.query() and start.elapsed_time(end) >= 0

called = []
bare.lazy_call(lambda: called.append(1))
assert called == [1]
for call, function, method in ((bare.is_bf16_supported, "is_bf16_supported", "is_bf16_supported"),
                               (bare.default_stream, "default_stream", "default_stream"),
                               (lambda: bare.default_generator(0), "default_generators", "default_generator")):
    text = raised(FunctionNotImplemented, call)
    assert f"torch.npu.{function}" in text and f"override {method} " in text, text
assert not hasattr(bare.device_module, "is_bf16_supported")
for dtypes in ([torch.float16], [torch.bfloat16, torch.float16]):
    amp = made(SimpleNamespace(device_count=torch.npu.device_count, get_amp_supported_dtype=lambda: dtypes))
    assert amp.is_bf16_supported() is (len(dtypes) == 2)

# torch has no counterparts for a type that is not its accelerator.
cpu = TorchDeviceAccelerator.__new__(Accelerator)
Accelerator.__init__(cpu, "cpu", collectives="gloo", ops=OpTable("none", {}), device_module=SimpleNamespace())
assert "override synchronize" in raised(FunctionNotImplemented, cpu.synchronize)
"""


def test_missing_functions_come_from_torch() -> None:
    on_device("npu", "-c", COMPARE)
