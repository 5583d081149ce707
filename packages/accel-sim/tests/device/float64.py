# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compare fused operators with float64: random shapes and types, backward, and the error for host tensors."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree

from accel_ops.reference import adam, step_lists

from .conftest import Device, raises

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
#: Roundings of its type that a result may be off by: two in a row, the second of a sum; and through long sums.
FEW, MANY = 4, 40


class Random:
    """Random numbers, shapes and tensors from a seed, so that a failure can be reproduced."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return int(torch.randint(low, high + 1, (1,), generator=self.generator))

    def settings(self, **largest: int) -> dict[str, Any]:
        """Return a number up to the largest for each name: from 0 where that is 1, else from 1."""
        return {name: self.number(int(most > 1), most) for name, most in largest.items()}

    def shape(self, dimensions: int | None = None, last: int | None = None) -> tuple[int, ...]:
        """Return sizes of 1 to 9."""
        count = self.number(1, 4) if dimensions is None else dimensions
        sizes = [self.number(1, 9) for _ in range(count)]
        return (*sizes[:-1], sizes[-1] if last is None else last)

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return normally distributed numbers; some tensors are views with gaps."""
        wide = torch.randn((*shape[:-1], shape[-1] * 2), generator=self.generator).to(dtype)
        return wide[..., ::2] if self.number(0, 1) else wide[..., ::2].contiguous()


def cases(count: int) -> Iterator[tuple[Random, torch.dtype]]:
    """Yield a number of random cases in each floating type."""
    for seed in range(count):
        for number, dtype in enumerate(FLOATS):
            yield Random(100 * seed + number), dtype


def close(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype | None = None, roundings: int = FEW
) -> None:
    """Raise AssertionError unless both agree within a number of roundings of the type."""
    assert found.shape == expected.shape, (
        f"found shape {tuple(found.shape)}, expected {tuple(expected.shape)}"
    )
    kind = dtype or found.dtype
    allowed = roundings * torch.finfo(kind).eps * (expected.abs() + expected.abs().mean() + 1e-3)
    off = (found.cpu().double() - expected).abs() > allowed
    assert not off.any(), (
        f"found {found.cpu()[off][:3].tolist()}, expected {expected[off][:3].tolist()} ({kind})"
    )


def double(value: Any) -> Any:
    """Return tensors on the host in float64, other values as they are."""
    change = lambda t: t.detach().cpu().double() if t.is_floating_point() else t.detach().cpu()  # noqa: E731
    return _pytree.tree_map_only(torch.Tensor, change, value)


def here(device: Device, value: Any) -> Any:
    """Return copies on the device, with the same strides."""
    return _pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device.type), value)


def agrees(
    device: Device, op: Any, reference: Callable[..., Any], *arguments: Any, backward: bool = False, **options: Any
) -> None:  # fmt: skip
    """Raise AssertionError unless results and gradients agree with the reference in float64 and host tensors raise."""
    given, wide = here(device, arguments), double(arguments)
    starts, ends = (
        [t for t in _pytree.tree_leaves(each) if isinstance(t, torch.Tensor) and t.is_floating_point()]
        for each in (given, wide)
    )
    for tensor in (*starts, *ends) if backward else ():
        tensor.requires_grad_()
    found = _pytree.tree_leaves(op(*given, **options))
    expected = _pytree.tree_leaves(reference(*wide, **options))
    for mine, theirs in zip(found, expected, strict=False):
        if isinstance(mine, torch.Tensor) and theirs is not None:
            close(mine.detach(), theirs.detach())
    if backward:
        found[0].float().square().sum().backward()
        expected[0].square().sum().backward()
        for mine, theirs in zip(starts, ends, strict=True):
            close(mine.grad, theirs.grad, min_precision(starts), MANY)
    raises(lambda: op(*arguments, **options), NotImplementedError, "CPU")


def min_precision(tensors: list[torch.Tensor]) -> torch.dtype:
    """Return the coarsest floating type of the tensors."""
    return max((t.dtype for t in tensors), key=lambda kind: torch.finfo(kind).eps)


def changes(
    device: Device, call: Callable[..., Any], reference: Callable[..., Any], tensors: list[Any], in_out: int,
    **settings: Any,
) -> None:  # fmt: skip
    """Raise AssertionError unless the call changes the last `in_out` entries as the reference, and no others."""
    given, wide = here(device, tensors), double(tensors)
    call(given, **settings)
    reference(wide, **settings)
    first, leaves = len(tensors) - in_out, _pytree.tree_leaves
    for mine, theirs in zip(leaves(given[first:]), leaves(wide[first:]), strict=True):
        close(mine, theirs)
    for mine, before in zip(leaves(given[:first]), leaves(tensors[:first]), strict=True):
        assert torch.equal(mine.cpu(), before), "an argument that is only read was changed"
    raises(lambda: call(_pytree.tree_map(lambda t: t, tensors), **settings), NotImplementedError, "CPU")
    mixed = here(device, tensors)
    mixed[-1] = _pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, mixed[-1])
    raises(lambda: call(mixed, **settings), RuntimeError, "same device")


def steps(
    device: Device, call: Callable[..., Any], reference: Callable[..., Any], lists: int = 4, **largest: int
) -> None:
    """Check with `changes` that an optimizer changes all lists but the gradients, with random settings."""
    for random, dtype in cases(6):
        tensors, settings = lists_of(random, dtype, lists), random.settings(**largest)
        changes(device, call, reference, tensors, lists - 1, **settings)


def rms_norm(x: Any, gamma: Any, epsilon: float) -> tuple[Any, Any]:
    """Return the norm over the dimensions of gamma, and one over its root."""
    over = tuple(range(-gamma.dim(), 0))
    root = torch.sqrt((x * x).mean(over, keepdim=True) + epsilon)
    return x / root * gamma, 1 / root


def swiglu(x: Any, dim: int) -> Any:
    """Return the silu of the first half times the second."""
    first, second = torch.chunk(x, 2, dim)
    return first / (1 + torch.exp(-first)) * second


def rotated(random: Random, dtype: torch.dtype, size: int) -> list[torch.Tensor]:
    """Return a batch, and the factors of its values and of the turned ones."""
    batch, length, heads = random.shape(3)
    shapes = (batch, length, heads, size), *[(1, length, 1, size)] * 2
    return [random.tensor(shape, dtype) for shape in shapes]


def rotary(x: Any, cos: Any, sin: Any, mode: str) -> Any:
    """Return a rotary embedding. mode: `half` or `interleave`."""
    turned = torch.empty_like(x)
    half = x.shape[-1] // 2
    if mode == "half":
        turned[..., :half], turned[..., half:] = -x[..., half:], x[..., :half]
    else:
        turned[..., ::2], turned[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return x * cos + turned * sin


def lists_of(random: Random, dtype: torch.dtype, lists: int = 4) -> list[list[torch.Tensor]]:
    """Gradients, parameters, first moments, second moments (not negative) of three tensors."""
    shapes = [random.shape() for _ in range(3)]
    found = [[random.tensor(shape, dtype) for shape in shapes] for _ in range(lists)]
    if lists == 4:
        found[3] = [each.abs() for each in found[3]]
    return found


def adam64(lists: list[Any], decay: int = 1, eps: float = 1e-6, **settings: Any) -> None:
    """Adam in place, with the rates that all tests of optimizers use."""
    step_lists(adam, lists, lr=0.01, betas=(0.9, 0.99), eps=eps, weight_decay=0.1 * decay, **settings)
