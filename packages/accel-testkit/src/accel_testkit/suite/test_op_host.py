# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Host ops: flattening, page-locked memory, and what optimizers on the host do beside their step."""

from __future__ import annotations

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs, op_steps
from accel_testkit.suite.expect import expect, expect_type
from accel_testkit.suite.holds import Holds
from accel_testkit.suite.op_steps import STEPS

pytestmark = pytest.mark.tier("device")

_HOST_STEPS = needs.ops(name for name, step in STEPS.items() if not step.on_device)


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(one.cpu(), other.cpu())


@pytest.mark.needs("UtilsBuilder")
@pytest.mark.parametrize("place", ["device", "host"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=["fp32", "bf16", "int64"])
def test_tensors_are_flattened(accelerator: DeepSpeedAccelerator, dtype: torch.dtype, place: str) -> None:
    """`flatten` joins the elements of tensors in order, and `unflatten` gives views in their shapes again."""
    op = accelerator.create_op_builder("UtilsBuilder").load()
    device = accelerator.device() if place == "device" else torch.device("cpu")
    shapes = [(3,), (2, 5), (0,), (), (4, 1, 2), (1025,)]  # one has no elements: an empty partition
    start = 0
    tensors = []
    for shape in shapes:
        count = torch.Size(shape).numel()
        tensors.append(torch.arange(start, start + count).view(shape).to(device, dtype))
        start += count
    tensors.append(tensors[1].t())  # not contiguous
    flat = op.flatten(tensors)
    wanted = torch.cat([tensor.reshape(-1) for tensor in tensors])
    parts = op.unflatten(flat, tensors)
    shaped = len(parts) == len(tensors) and all(
        a.shape == b.shape for a, b in zip(parts, tensors, strict=True)
    )
    alike = shaped and all(_equal(a, b) for a, b in zip(parts, tensors, strict=True))
    flat.fill_(7)
    Holds(
        {
            "flatten() joins all elements in order": flat.shape == wanted.shape and alike,
            "flatten() copies": _equal(tensors[0], torch.arange(3).to(dtype)),
            "flatten() keeps type and device": (flat.dtype, flat.device) == (wanted.dtype, wanted.device),
            "unflatten() gives the shapes again": shaped,
            "unflatten() gives views": all(bool((part == 7).all()) for part in parts),
        }
    ).expect(
        "flatten() or unflatten()", "load torch._utils._flatten_dense_tensors and _unflatten_dense_tensors"
    )


@pytest.mark.needs("PinMemoryBuilder")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32], ids=["uint8", "bf16", "fp32"])
def test_locked_memory_is_locked_until_freed(accelerator: DeepSpeedAccelerator, dtype: torch.dtype) -> None:
    """`pin_handle` gives host tensors of any size and type, each its own, and forgets them once they are freed."""
    handle = accelerator.create_op_builder("PinMemoryBuilder").load().pin_handle()
    blocks = [handle.new_cpu_locked_tensor(size, torch.empty(0, dtype=dtype)) for size in (5, 4097, 5)]
    for value, block in enumerate(blocks):
        block.fill_(value)
    ordinary = torch.zeros(64, dtype=dtype)
    found = {
        "sizes, types and places are those asked for": [
            (block.numel(), block.dtype, block.device.type) for block in blocks
        ]
        == [(size, dtype, "cpu") for size in (5, 4097, 5)],
        "no two share memory": all(bool((block == value).all()) for value, block in enumerate(blocks)),
        "is_pinned() of each": all(handle.is_pinned(block) for block in blocks),
        "is_pinned() of a part": handle.is_pinned(blocks[1][100:200]),
        "not is_pinned() of ordinary memory": not handle.is_pinned(ordinary),
        "free_cpu_locked_tensor() is True": handle.free_cpu_locked_tensor(blocks[1]) is True,
        "a freed one is not freed again": handle.free_cpu_locked_tensor(blocks[1]) is False,
        "others are pinned still": handle.is_pinned(blocks[0]) and handle.is_pinned(blocks[2]),
        "an ordinary one is not freed": handle.free_cpu_locked_tensor(ordinary) is False,
    }
    freed = [handle.free_cpu_locked_tensor(blocks[i]) for i in (0, 2)]
    Holds({**found, "the others are freed": freed == [True, True]}).expect(
        "page-locked memory of pin_handle", "keep the locked blocks by address until they are freed"
    )


@pytest.mark.needs("CPUAdamBuilder")
def test_adam_can_take_a_step_back(accelerator: DeepSpeedAccelerator) -> None:
    """`adam_rollback`, where there is one, undoes the step that was taken with the same arguments."""
    op = accelerator.create_op_builder("CPUAdamBuilder").load()
    if getattr(op, "adam_rollback", None) is None:
        return
    generator = torch.Generator().manual_seed(3)
    before = [torch.rand(33, generator=generator) for _ in range(4)]
    errors = {}
    for decoupled in (True, False):
        op.create_adam(op_steps.FIRST_ID, 0.1, 0.9, 0.99, 1e-8, 0.1, decoupled, False)
        grad, *tensors = (tensor.clone() for tensor in before)
        arguments = (op_steps.FIRST_ID, 3, 0.05, 0.9, 0.99, 1e-6, 0.1, True, tensors[0], grad, *tensors[1:])
        op.adam_update(*arguments)
        moved = float((tensors[0] - before[1]).abs().max())
        op.adam_rollback(*arguments)
        op.destroy_adam(op_steps.FIRST_ID)
        apart = max(float((a - b).abs().max()) for a, b in zip(tensors, before[1:], strict=True))
        errors[decoupled] = (moved, apart)
    expect(
        all(moved > 1e-3 and apart < 1e-4 for moved, apart in errors.values()),
        "adam_rollback() does not undo a step",
        found=f"(moved by the step, apart after the rollback) by decoupled: {errors}",
        expected="a step that moves, and at most 1e-4 left of it",
        do="compute the step backwards, with the same arguments",
    )


@pytest.mark.parametrize("name", _HOST_STEPS)
def test_optimizers_can_be_destroyed_twice(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Destroying an optimizer that is gone is no error: destructors do so at exit."""
    op = accelerator.create_op_builder(name).load()
    settings = STEPS[name].first
    op_steps.create(op, name, op_steps.FIRST_ID, settings)
    for _ in range(2):
        op_steps.destroy(op, name, op_steps.FIRST_ID)


@pytest.mark.needs("PinMemoryBuilder")
def test_handles_share_their_memory(accelerator: DeepSpeedAccelerator) -> None:
    """A block of one handle is known to another one, which frees it by its address."""
    module = accelerator.create_op_builder("PinMemoryBuilder").load()
    one, other = module.pin_handle(), module.pin_handle()
    block = one.new_cpu_locked_tensor(16, torch.empty(0))
    found = other.is_pinned(block)
    freed = other.free_cpu_locked_tensor_by_ptr(block.data_ptr())
    expect_type(freed, bool, "free_cpu_locked_tensor_by_ptr()", do="return whether a block begins there")
    expect(
        found and freed and not one.free_cpu_locked_tensor(block),
        "handles do not share the process's page-locked memory",
        found=f"is_pinned() by the other handle {found!r}, freed by it {freed!r}",
        expected="True and True, and the block is gone for both",
        do="keep one list of blocks for the process",
    )


@pytest.mark.needs("UtilsBuilder")
@pytest.mark.parametrize("place", ["host", "device"])
def test_tensors_are_bytes(accelerator: DeepSpeedAccelerator, place: str) -> None:
    """`cast_to_byte_tensor`, where there is one, gives the memory of a tensor, and a list for a list or tuple."""
    cast = getattr(accelerator.create_op_builder("UtilsBuilder").load(), "cast_to_byte_tensor", None)
    if cast is None:
        return
    device = accelerator.device() if place == "device" else torch.device("cpu")
    tensors = [
        torch.tensor([1.0, -2.0], device=device),
        torch.arange(3, device=device),
        torch.ones(0, device=device),
    ]
    wanted = [tensor.cpu().numpy().tobytes() for tensor in tensors]
    forms = {
        "a list": cast(tensors),
        "a tuple": cast(tuple(tensors)),
        "each": [cast(each) for each in tensors],
    }
    found = {}
    for name, parts in forms.items():
        is_list = isinstance(parts, (list, tuple)) and len(parts) == len(tensors)
        found[f"{name}: flat bytes for each"] = is_list and all(
            part.dtype == torch.uint8 and part.dim() == 1 and bytes(part.tolist()) == data
            for part, data in zip(parts, wanted, strict=True)
        )
    forms["each"][0].zero_()
    found["the memory of the tensor itself"] = tensors[0].tolist() == [0.0, 0.0]
    Holds(found).expect(
        "cast_to_byte_tensor()", "view the tensor as torch.uint8: a copy doubles the memory of a checkpoint"
    )
