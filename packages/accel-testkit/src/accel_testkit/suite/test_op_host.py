# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Host ops: flattening, page-locked memory, and what optimizers on the host do beside their step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.op_builder.optimizers import HostStepOp, host_step_op
from accel_testkit.suite import needs, op_steps
from accel_testkit.suite.expect import expect, expect_type
from accel_testkit.suite.holds import Holds
from accel_testkit.suite.op_steps import STEPS

pytestmark = pytest.mark.tier("device")


_AS_OURS = "compare it with accel_ops.op_builder.optimizers.HostStepOp"
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
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


# ------------------------------------------- what host optimizers may offer for offloaded gradients, and then do right


def _offered(accelerator: DeepSpeedAccelerator, name: str) -> HostStepOp | None:
    """The op, if it has these functions; without them the bridge leaves DeepSpeed's own path."""
    return host_step_op(accelerator.create_op_builder(name).load())


def _numbers(size: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("name", _HOST_STEPS)
def test_gradients_are_copied_and_summed(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`copy_gradient` converts, adds to what was accumulated or replaces it, and returns the sum of squares."""
    op, holds = _offered(accelerator, name), Holds()
    if op is None:
        return
    for source in _FLOATS:
        for target in (source, torch.float32):
            for add in (None, True, False):
                grad, before = _numbers(1029, source), _numbers(1029, source, 2)
                kept, place = before.clone(), torch.full((1029,), torch.nan, dtype=target)
                named = {} if add is None else {"accumulated": kept, "add": add}
                squares = op.copy_gradient(grad, place, **named)  # type: ignore[arg-type]
                wanted = before.add(grad) if add else grad
                case = f"{source} to {target}, {'alone' if add is None else 'added' if add else 'replaced'}"
                holds.same(f"{case}: what is copied", place, wanted.to(target))
                holds.same(f"{case}: the gradient stays", grad, _numbers(1029, source))
                if add is not None:
                    holds.same(f"{case}: what is accumulated", kept, wanted)
                exact = float(place.double().square().sum())
                holds[f"{case}: the sum of squares, {squares:g}"] = math.isclose(squares, exact, rel_tol=1e-6)
    holds.expect(f"copy_gradient() of {name}", _AS_OURS)


@pytest.mark.parametrize("name", _HOST_STEPS)
def test_squares_are_summed_in_float64(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`sum_of_squares` neither overflows nor loses small numbers, and shows NaN and infinity."""
    op, holds = _offered(accelerator, name), Holds()
    if op is None:
        return
    cases = {
        "squares beyond float32": torch.full((5,), 1e30),
        "squares below float32": torch.full((5,), 1e-30),
        "many small beside a large": torch.cat([torch.tensor([4096.0]), torch.full((99_999,), 1e-1)]),
        "float16": _numbers(4097, torch.float16) * 100,
        "nothing": torch.empty(0),
    }
    for case, tensor in cases.items():
        found, wanted = op.sum_of_squares(tensor), float(tensor.double().square().sum())
        holds[f"{case}: {found:g}"] = math.isclose(found, wanted, rel_tol=1e-7)
    for number in (math.nan, math.inf, -math.inf):
        tensor = torch.ones(1029)
        tensor[-1] = number
        for seen in (op.sum_of_squares(tensor), op.copy_gradient(tensor, torch.empty(1029))):
            holds[f"{number} is seen: {seen:g}"] = not math.isfinite(seen)
    holds.expect(f"sum_of_squares() of {name}", _AS_OURS)


@pytest.mark.parametrize("dtype", _FLOATS[1:], ids=["bf16", "fp16"])
@pytest.mark.parametrize("name", _HOST_STEPS)
def test_fused_steps_are_steps(
    accelerator: DeepSpeedAccelerator, created: Any, name: str, dtype: torch.dtype
) -> None:
    """`fused` steps as with multiplied gradients, which stay, and fills the copy, each piece before it is told."""
    step, holds = STEPS[name], Holds()
    settings = step.first
    op = created(name, op_steps.FIRST_ID, settings)
    offered = host_step_op(op)
    if offered is None:
        return
    values = {**step.schedule()[0], **settings, "id": op_steps.FIRST_ID}
    plain = [[_numbers(1029, torch.float32, seed).abs()] for seed in range(2 + step.states)]
    fused = [[group[0].clone()] for group in plain]
    plain[0][0] *= 0.25
    step.call(op, plain, values)
    copy = torch.full((1029,), torch.nan, dtype=dtype)
    reported: list[tuple[int, int, bool]] = []

    def copied(begin: int, end: int) -> None:
        reported.append((begin, end, not copy[begin:end].isnan().any()))

    stepping = offered.fused(grad_factor=0.25, copy=copy, copied=copied)
    _call_fused(step, stepping, fused, values)
    for number, (ours, theirs) in enumerate(zip(fused[1:], plain[1:], strict=True)):
        holds[f"output {number} is that of the step"] = torch.allclose(
            ours[0], theirs[0], rtol=1e-6, atol=1e-7
        )
    holds.same("the gradient stays", fused[0][0], _numbers(1029, torch.float32, 0).abs())
    holds.same("the copy is rounded to nearest", copy, fused[1][0].to(dtype))
    holds[f"pieces follow each other to the end: {reported}"] = _cover(reported, 1029)
    holds["each piece is complete when it is told"] = all(whole for _, _, whole in reported)
    holds[f"updates counts: {stepping.updates}"] = stepping.updates == 1
    holds.expect(f"fused() of {name}", _AS_OURS)


def _call_fused(
    step: op_steps.StepOp, op: Any, lists: list[op_steps.Tensors], values: op_steps.Values
) -> None:
    class Passing:
        """Hands gradients on as they are, where a step of ours clones them."""

        def __getattr__(self, name: str) -> Any:
            if name != "adagrad_update":
                return getattr(op, name)
            return lambda *a: op.adagrad_update(*a[:6], lists[0][0], *a[7:])

    step.call(Passing(), lists, values)


def _cover(reported: list[tuple[int, int, bool]], size: int) -> bool:
    ends = [0, *(end for _, end, _ in reported)]
    return [begin for begin, _, _ in reported] == ends[:-1] and ends[-1] == size
