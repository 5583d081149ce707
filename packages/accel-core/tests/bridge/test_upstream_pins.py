# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Page-locked memory: 0.19's own allocator behind ours."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream


def _has_native_pins() -> bool:
    found = importlib.util.find_spec("deepspeed")
    return bool(found and found.origin and (Path(found.origin).parent / "utils/pin_memory.py").is_file())


_NATIVE = """
import deepspeed, torch
from accel_core import OpBuilder
from accel_toy import Toy_Accelerator
from deepspeed.utils import pin_memory

class Handle:  # stands in for the op behind upstream's allocator, which is compiled
    def new_cpu_locked_tensor(self, numel, example):
        return torch.empty(numel, dtype=example.dtype)
    def free_cpu_locked_tensor_by_ptr(self, address):
        return True

class Builder(OpBuilder):
    NAME = "pin_memory"
    pin_handle = Handle
    def compatibility(self):
        return True, "pretended"
    def load(self, verbose=True):
        return self

class Pinning(Toy_Accelerator):
    told = []
    def get_op_builder(self, class_name):
        return Builder if class_name == "PinMemoryBuilder" else super().get_op_builder(class_name)
    def register_host_memory(self, address, num_bytes):
        self.told.append(num_bytes)
        return True

deepspeed.accelerator.set_accelerator(Pinning())
accel = deepspeed.accelerator.get_accelerator()
tensor = torch.arange(6.0).reshape(2, 3)
pinned = accel.pin_memory(tensor)
native = pin_memory.get_active_native_pinned_memory()
assert type(native) is pin_memory.NativePinnedMemory
assert torch.equal(pinned, tensor)
assert native.is_pinned(pinned) and accel.is_pinned(pinned)
assert accel.told == [24]
assert accel.is_pinned(accel.pin_memory(tensor, make_copy=False, match_shape=False))
assert accel.is_pinned(accel.pin_empty(2, 2, dtype=torch.int8))
assert accel.is_pinned(accel.pin_empty_like(tensor))
assert not accel.is_pinned(tensor)
assert accel.unpin_memory(pinned) is True
"""


@pytest.mark.skipif(not _has_native_pins(), reason="this DeepSpeed has no allocator of its own")
def test_deepspeeds_own_allocator_is_reached_when_it_is_chosen(children: Any, toy: Path) -> None:
    children.run(_NATIVE, [toy], DS_PIN_MEMORY_BACKEND="native")
    assert children.compiled() == []
