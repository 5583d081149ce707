# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Host ops: flattening, page-locked memory, and what optimizers on the host do in addition to their step."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops.calls import problem
from accel_testkit.suite.ops.optimizers import FIRST_ID, ON_HOST

pytestmark = pytest.mark.tier("device")


@pytest.mark.needs("UtilsBuilder")
@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=["fp32", "bf16", "int64"])
def test_tensors_are_flattened(op: Any, device: torch.device, dtype: torch.dtype, place: str) -> None:
    """`flatten` joins the elements of tensors in order, and `unflatten` gives views in their shapes again."""
    shapes = [(3,), (2, 5), (0,), (), (4, 1, 2), (1025,)]  # one has no elements: an empty partition
    counts = [torch.Size(shape).numel() for shape in shapes]
    numbers = torch.arange(sum(counts)).to(device if place == "device" else "cpu", dtype)
    tensors = [part.clone().view(shape) for part, shape in zip(numbers.split(counts), shapes, strict=True)]
    tensors.append(tensors[1].t())  # not contiguous
    holds, flat = Holds(), op.flatten(tensors)
    whole = torch.cat([each.reshape(-1) for each in tensors])
    holds.same("flatten() joins all elements in order", flat, whole)
    holds.equal("the device of flatten()", flat.device, numbers.device)
    parts = op.unflatten(flat, tensors)
    holds.equal("how many tensors unflatten() gives", len(parts), len(tensors))
    for part, tensor in zip(parts, tensors, strict=False):
        holds.same(f"unflatten() gives the shape {tuple(tensor.shape)} again", part, tensor)
    flat.fill_(7)
    holds.same("flatten() copies", tensors[0], torch.arange(3).to(dtype))
    holds["unflatten() gives views"] = all(bool((part == 7).all()) for part in parts)
    do = "load torch._utils._flatten_dense_tensors and _unflatten_dense_tensors"
    holds.expect("flatten() or unflatten()", do)


@pytest.mark.needs("PinMemoryBuilder")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32], ids=["uint8", "bf16", "fp32"])
def test_locked_memory_is_locked_until_freed(op: Any, dtype: torch.dtype) -> None:
    """`pin_handle` gives host tensors of any size and type, each its own, and forgets them once they are freed.

    A block of one handle is known to another one, which frees it by its address.
    """
    handle, another, holds = op.pin_handle(), op.pin_handle(), Holds()
    blocks = [handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=dtype)) for size in (5, 4097, 5)]
    for value, block in enumerate(blocks):
        block.fill_(value)
    ordinary = torch.zeros(64, dtype=dtype)
    form = [(block.numel(), block.dtype, block.device.type) for block in blocks]
    holds.equal("sizes, types and places", form, [(size, dtype, "cpu") for size in (5, 4097, 5)])
    holds["no two share memory"] = all(bool((block == value).all()) for value, block in enumerate(blocks))
    holds["is_pinned() of each"] = all(handle.is_pinned(block) for block in blocks)
    holds["is_pinned() of a part"] = handle.is_pinned(blocks[1][100:200])
    holds["not is_pinned() of ordinary memory"] = not handle.is_pinned(ordinary)
    holds.equal("free_cpu_locked_tensor()", handle.free_cpu_locked_tensor(blocks[1]), True)
    holds.equal("that of a freed one", handle.free_cpu_locked_tensor(blocks[1]), False)
    holds["others are pinned still"] = handle.is_pinned(blocks[0]) and handle.is_pinned(blocks[2])
    holds.equal("that of ordinary memory", handle.free_cpu_locked_tensor(ordinary), False)
    holds["is_pinned() of another handle"] = another.is_pinned(blocks[0])
    freed = another.free_cpu_locked_tensor_by_ptr(blocks[0].data_ptr())
    holds.equal("free_cpu_locked_tensor_by_ptr() of another handle", freed, True)
    others = [handle.free_cpu_locked_tensor(blocks[i]) for i in (0, 2)]
    holds.equal("that of the others", others, [False, True])
    holds.expect("page-locked memory of pin_handle", "keep one list of blocks by address for the process")


@pytest.mark.needs("CPUAdamBuilder")
def test_adam_can_take_a_step_back(op: Any) -> None:
    """`adam_rollback`, where there is one, undoes the step that was taken with the same arguments."""
    if getattr(op, "adam_rollback", None) is None:
        pytest.skip("the op has no adam_rollback")
    generator = torch.Generator().manual_seed(3)
    before = [torch.rand(33, generator=generator) for _ in range(4)]
    holds = Holds()
    for decoupled in (True, False):
        op.create_adam(FIRST_ID, 0.1, 0.9, 0.99, 1e-8, 0.1, decoupled, False)
        grad, *tensors = (tensor.clone() for tensor in before)
        arguments = (FIRST_ID, 3, 0.05, 0.9, 0.99, 1e-6, 0.1, True, tensors[0], grad, *tensors[1:])
        op.adam_update(*arguments)
        moved = float((tensors[0] - before[1]).abs().max())
        op.adam_rollback(*arguments)
        op.destroy_adam(FIRST_ID)
        apart = max(float((a - b).abs().max()) for a, b in zip(tensors, before[1:], strict=True))
        what = f"decoupled {decoupled}: the step moves by {moved:g}, of which at most 1e-4 is left: {apart:g}"
        holds[what] = moved > 1e-3 and apart < 1e-4
    holds.expect("adam_rollback()", "compute the step backwards, with the same arguments")


class _Problems(torch.utils.data.Dataset[str]):
    """The problems of an op, found where an item is fetched."""

    def __init__(self, name: str, op: Any) -> None:
        self._name, self._op = name, op

    def __getitem__(self, index: int) -> str:
        return problem(self._name, self._op, torch.device("cpu"))


@pytest.mark.skipif(sys.platform == "darwin", reason="a process of macOS does not survive a fork")
@pytest.mark.parametrize("name", needs.ops(ON_HOST))
def test_step_works_in_a_forked_worker(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A process that is forked after a step takes steps, too: kernels keep no threads of their parent."""
    problems = _Problems(name, accelerator.create_op_builder(name).load())
    problems[0]
    loader = torch.utils.data.DataLoader(
        problems, sampler=[0], num_workers=1, timeout=60, multiprocessing_context="fork"
    )
    holds = Holds({f"the same step in a worker: {found}": not found for (found,) in loader})
    holds.expect(f"{name} in a forked process", "start threads for a call, or after a fork again")


@pytest.mark.needs("UtilsBuilder")
@pytest.mark.parametrize("place", ["host", "device"])
def test_tensors_are_bytes(op: Any, device: torch.device, place: str) -> None:
    """`cast_to_byte_tensor`, where there is one, gives the memory of a tensor, and a list for a list or tuple."""
    cast, holds = getattr(op, "cast_to_byte_tensor", None), Holds()
    if cast is None:
        pytest.skip("the op has no cast_to_byte_tensor")
    there = device if place == "device" else "cpu"
    tensors = [each.to(there) for each in (torch.tensor([1.0, -2.0]), torch.arange(3), torch.ones(0))]
    wanted = [torch.tensor([*tensor.cpu().numpy().tobytes()], dtype=torch.uint8) for tensor in tensors]
    forms = {
        "a list": cast(tensors),
        "a tuple": cast(tuple(tensors)),
        "each": [cast(each) for each in tensors],
    }
    for name, parts in forms.items():
        listed = isinstance(parts, (list, tuple)) and len(parts) == len(tensors)
        holds[f"{name}: a list for a list"] = listed
        for part, data in zip(parts if listed else (), wanted, strict=False):
            holds.same(f"{name}: flat bytes of each", part, data)
    forms["each"][0].zero_()
    holds.equal("the tensor itself, once its bytes are 0", tensors[0].tolist(), [0.0, 0.0])
    do = "view the tensor as torch.uint8: a copy doubles the memory of a checkpoint"
    holds.expect("cast_to_byte_tensor()", do)
