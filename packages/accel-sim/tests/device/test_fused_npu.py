# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""torch.ops.npu against float64."""

from typing import Any

import torch
import torch_npu
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from accel_ops.reference import adam, step_lists

from .conftest import Device, raises
from .float64 import MANY, agrees, cases, changes, close, double, here, rms_norm, rotary, rotated, swiglu


def test_npu_apply_adam_w(device: Device) -> None:
    # Numbers that every type holds.
    def call(given: list[Any], step: int, decay: int) -> None:
        torch_npu.npu_apply_adam_w(0.75 ** (step - 1), 0.875 ** (step - 1), 2**-7, decay / 8, 0.75, 0.875, 2**-20,
                                given[0], None, False, False, out=given[1:])  # fmt: skip

    def reference(given: list[Any], step: int, decay: int) -> None:
        rates: Any = {"lr": 2**-7, "betas": (0.75, 0.875), "eps": 2**-20, "weight_decay": decay / 8}
        step_lists(adam, [[each] for each in given], **rates, step=step)

    for random, dtype in cases(6):
        tensors = [random.tensor(shape, dtype) for shape in [random.shape()] * 4]
        tensors[3] = tensors[3].abs()
        changes(device, call, reference, tensors, 3, **random.settings(step=3, decay=1))
    one = torch.ones(2, device=device.type)
    raises(lambda: torch.ops.npu.npu_apply_adam_w(0.9, 0.9, 1, 0, 0.9, 0.9, 1, one, None, None, None), RuntimeError,
            "not implemented for Tensor")  # fmt: skip


def test_npu_apply_adam_w_rounds_its_numbers(device: Device) -> None:
    def stepped(dtype: torch.dtype, grad: float) -> list[float]:
        """Take a first step with DeepSpeed's defaults; moments are float32."""
        gradient, param = (torch.full((2,), value, dtype=dtype, device=device.type) for value in (grad, 1.0))
        moments = [torch.zeros(2, device=device.type) for _ in range(2)]
        torch_npu.npu_apply_adam_w(1.0, 1.0, 0.25, 0.0, 0.9, 0.999, 1e-8, gradient, None, False, False,
                                out=[param, *moments])  # fmt: skip
        return param.tolist()

    kinds = (torch.float32, torch.float16, torch.bfloat16)
    assert [torch.tensor(stepped(kind, 0.5)).isnan().any().item() for kind in kinds] == [False, False, True]
    assert [torch.tensor(stepped(kind, 0.0)).isnan().any().item() for kind in kinds] == [False, True, True]
    assert stepped(torch.float32, 0.5) == [0.75, 0.75]


def test_npu_rms_norm(device: Device) -> None:
    for random, dtype in cases(6):
        shape = random.shape(3)
        gamma = shape[-random.number(1, 2) :]
        agrees(device, torch_npu.npu_rms_norm, rms_norm, random.tensor(shape, dtype), random.tensor(gamma, dtype), 1e-5,
               backward=True)  # fmt: skip


def test_a_mode_of_the_dispatcher_sees_an_operator_with_a_backward(device: Device) -> None:
    names: list[str] = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append(func.name())
            return func(*args, **(kwargs or {}))

    x, gamma = torch.ones(2, 4, device=device.type), torch.ones(4, device=device.type)
    with Seen():
        torch_npu.npu_rms_norm(x, gamma)
    assert "npu::npu_rms_norm" in names


def test_npu_add_rms_norm(device: Device) -> None:
    def reference(x1: Any, x2: Any, gamma: Any, epsilon: float) -> Any:
        # The sum is rounded to the type of the inputs before the norm.
        total = (x1 + x2).to(kind).double()
        return (*rms_norm(total, gamma, epsilon), total)

    for random, kind in cases(6):
        shape = random.shape(3)
        tensors = [random.tensor(each, kind) for each in (shape, shape, shape[-1:])]
        agrees(device, torch_npu.npu_add_rms_norm, reference, *tensors, 1e-5)


def test_npu_rotary_mul(device: Device) -> None:
    for random, dtype in cases(6):
        tensors = rotated(random, dtype, 2 * random.number(1, 5))
        for mode in ("half", "interleave"):
            agrees(device, torch_npu.npu_rotary_mul, rotary, *tensors, mode, backward=True)
    raises(lambda: torch_npu.npu_rotary_mul(*here(device, tensors), "other"), RuntimeError, "rotary_mode")


def test_npu_apply_rotary_pos_emb(device: Device) -> None:
    def reference(q: Any, k: Any, cos: Any, sin: Any, _layout: str, mode: str) -> Any:
        return rotary(q, cos, sin, mode), rotary(k, cos, sin, mode)

    for random, dtype in cases(4):
        q, cos, sin = rotated(random, dtype, 8)
        k = random.tensor((*q.shape[:2], 1, 8), dtype)
        agrees(device, torch_npu.npu_apply_rotary_pos_emb, reference, q, k, cos, sin, "BSND", "half")


def test_npu_swiglu(device: Device) -> None:
    for random, dtype in cases(6):
        shape = random.shape(3, last=2 * random.number(1, 5))
        agrees(device, torch_npu.npu_swiglu, swiglu, random.tensor(shape, dtype), -1, backward=True)
        agrees(device, torch_npu.npu_swiglu, swiglu, random.tensor((2, 4, 3), dtype), 1)


def test_npu_geglu(device: Device) -> None:
    def reference(x: Any, dim: int, approximate: int, left: bool) -> Any:
        first, second = torch.chunk(x, 2, dim)
        gate, value = (first, second) if left else (second, first)
        gelu = functional.gelu(gate, approximate="tanh" if approximate else "none")
        return value * gelu, gelu

    for random, dtype in cases(4):
        x = random.tensor(random.shape(2, last=2 * random.number(1, 5)), dtype)
        for approximate in (0, 1):
            options = (-1, approximate, bool(random.number(0, 1)))
            agrees(device, torch_npu.npu_geglu, reference, x, *options, backward=True)


def test_npu_dtype_cast(device: Device) -> None:
    for random, dtype in cases(2):
        x = random.tensor(random.shape(), dtype).to(device.type)
        for kind in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
            found = torch_npu.npu_dtype_cast(x, kind)
            assert found.dtype == kind
            assert torch.equal(found.cpu(), x.cpu().to(kind))
    raises(lambda: torch_npu.npu_dtype_cast(torch.ones(1), torch.int32), NotImplementedError, "CPU")


def test_npu_scatter(device: Device) -> None:
    for random, dtype in cases(4):
        rows, columns = random.shape(2)
        x, updates = random.tensor((rows, columns), dtype), random.tensor((columns,), dtype)
        where = torch.randint(0, rows, (columns,), generator=random.generator, dtype=torch.int32)

        def reference(x: Any, where: Any, updates: Any, _dim: int) -> Any:
            result = x.clone()
            for column, row in enumerate(where.tolist()):
                result[row, column] = updates[column]
            return result

        agrees(device, torch_npu.npu_scatter, reference, x, where, updates, 0)


def test_npu_dynamic_quant(device: Device) -> None:
    for random, dtype in cases(4):
        if dtype == torch.float32:
            continue
        x = random.tensor(random.shape(3), dtype)
        x[..., 0] = 2.0
        integers, steps = torch_npu.npu_dynamic_quant(x.to(device.type))
        wide = x.double()
        close(steps, wide.abs().amax(-1) / 127)
        off = (integers.cpu() * steps.cpu().double().unsqueeze(-1) - wide).abs()
        assert integers.dtype == torch.int8
        assert bool((off <= steps.cpu().unsqueeze(-1) * 0.50001).all())
    ties = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]], dtype=torch.float16, device=device.type)
    assert torch_npu.npu_dynamic_quant(ties)[0].tolist() == [[127, 0, 2, 2, 0, -2]], (
        "ties go to the even integer"
    )
    raises(lambda: torch_npu.npu_dynamic_quant(ties.float()), RuntimeError, "float32")
    raises(lambda: torch_npu.npu_dynamic_quant(ties.cpu()), NotImplementedError, "CPU")


def _attention(q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
    """Compute attention on (batch, heads, sequence, size), one head and row after the other."""
    groups = q.shape[1] // k.shape[1]
    result = torch.empty_like(q)
    for batch, head in ((b, h) for b in range(q.shape[0]) for h in range(q.shape[1])):
        scores = scale * q[batch, head] @ k[batch, head // groups].T
        if mask is not None:
            scores[mask] = -torch.inf
        result[batch, head] = torch.softmax(scores, -1) @ v[batch, head // groups]
    return result


def test_npu_fusion_attention(device: Device) -> None:
    to_layout = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}
    for random, dtype in cases(4):
        batch, kv_heads, length = random.shape(3)
        heads, size = kv_heads * random.number(1, 2), 2 * random.number(1, 4)
        q, k, v = (random.tensor((batch, n, length, size), dtype) for n in (heads, kv_heads, kv_heads))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        expected = _attention(double(q), double(k), double(v), mask, 0.5)
        for layout, order in to_layout.items():
            given = [here(device, each).permute(order) for each in (q, k, v)]
            wanted = expected.permute(order)
            if len(layout) == 3:
                given, wanted = [each.flatten(-2) for each in given], wanted.flatten(-2)
            for options in ({"atten_mask": mask.to(device.type)}, {"sparse_mode": 2}, {"sparse_mode": 3}):
                found = torch_npu.npu_fusion_attention(*given, heads, layout, scale=0.5, **options)
                close(found[0], wanted, roundings=MANY)
                assert found[1].shape == found[2].shape == (batch, heads, length, 8)
    raises(lambda: torch_npu.npu_fusion_attention(q, k, v, heads, "BNSD"), NotImplementedError, "CPU")
    leaves = [torch.randn(1, 2, 3, 4, device=device.type, requires_grad=True) for _ in range(3)]
    torch_npu.npu_fusion_attention(*leaves, 2, "BNSD", scale=0.5)[0].square().sum().backward()
    wide = [leaf.detach().cpu().double().requires_grad_() for leaf in leaves]
    plain: Any = functional.scaled_dot_product_attention(wide[0], wide[1], wide[2], scale=0.5)
    plain.square().sum().backward()
    for mine, theirs in zip(leaves, wide, strict=True):
        close(mine.grad, theirs.grad, roundings=MANY)
