# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op extremes: masks of every kind and size, and rows of extreme and degenerate numbers, compared with float64.

Numbers are those whose squares float32 holds: beyond them norms and moments of torch overflow, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import activation, layer_norm, rms_norm
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.inference_functions import typed

pytestmark = pytest.mark.tier("device")

Tensor = torch.Tensor
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_MANY, _NAN = math.inf, math.nan
#: Eight numbers of a row or a group.
ROWS = {
    "zeros": [0.0] * 8,
    "zeros of both signs": [0.0, -0.0] * 4,
    "one number, others 0": [0.0] * 7 + [3e4],
    "a small constant": [-0.1] * 8,
    "a large constant": [-6e4] * 8,
    "subnormal": [1e-40, -3e-42, 0.0, 1e-45] * 2,
    "tiny": [1e-30 * (number - 3) for number in range(8)],
    "large": [1e18, -1e18, 0.0, 1e17] * 2,
    "of every size": [1e-20, -1e-10, 1e-5, 1.0, -1e4, 1e8, 1e12, -1e16],
    "halfway": [number + 0.5 for number in range(-4, 4)],
    "an infinity": [_MANY, *[1.0] * 7],
    "both infinities": [_MANY, -_MANY, *[1.0] * 6],
    "a NaN": [*[1.0] * 7, _NAN],
}
_DO = "compute in float32, as accel_ops does; hide values by masked_fill, not by a product with 0"


def _kinds(accelerator: DeepSpeedAccelerator) -> list[torch.dtype]:
    return [kind for kind in _TYPES if kind in accelerator.supported_dtypes()]


def _same(holds: Holds, what: str, found: Tensor, wanted: Tensor, allowed: Tensor | float) -> None:
    """Expect numbers that are not finite where the rounded reference is not, and others as near as is allowed."""
    mine, finite = found.detach().cpu().double(), wanted.to(found.dtype).isfinite()
    apart = (mine.where(finite, 0.0) - wanted.where(finite, 0.0)).abs()
    right = torch.equal(mine.isfinite(), finite) and bool((apart <= allowed).all())
    holds[what if right else f"{what}: {mine.tolist()!s:.150}, expected {wanted.tolist()!s:.150}"] = right


# ---------------------------------------------------------------------------------------- attention

_BATCH, _HEADS, _TOKENS, _WIDTH = 2, 2, 4, 4
#: Shapes of masks for as many keys.
_SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "a sequence": lambda keys: (_BATCH, keys),
    "a sequence of four dimensions": lambda keys: (_BATCH, 1, 1, keys),
    "queries": lambda keys: (_BATCH, _TOKENS, keys),
    "queries of four dimensions": lambda keys: (_BATCH, 1, _TOKENS, keys),
    "heads": lambda keys: (_BATCH, _HEADS, _TOKENS, keys),
    "one for all": lambda keys: (1, 1, 1, keys),
    "one more key": lambda keys: (_BATCH, 1, 1, keys + 1),
    "one key less": lambda keys: (_BATCH, 1, 1, keys - 1),
}


def _hidden(shape: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of bool, True where a key is hidden."""
    nothing = torch.zeros(shape, dtype=torch.bool)
    first, last, sequence = nothing.clone(), ~nothing, nothing.clone()
    first[..., 0], last[..., -1], sequence[0] = True, False, True
    yield from {
        "nothing": nothing,
        "one key": first,
        "all keys but one": last,
        "a sequence": sequence,
    }.items()
    yield "all keys", ~nothing
    yield "some", torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.5


def _masks(shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of each kind."""
    for name, hidden in _hidden(shape):
        for value in (-_MANY, torch.finfo(dtype).min, -1e4):
            yield f"{value:g} for {name}", torch.zeros(shape).masked_fill(hidden, value).to(dtype)
        yield f"bool for {name}", ~hidden
        yield f"integers for {name}", (~hidden).int()
    soft = torch.randn(shape, generator=torch.Generator().manual_seed(7)).mul_(3).to(dtype)
    yield "biases", soft
    yield "biases beside hidden keys", soft.masked_fill(soft < -2, -1e4)


def _attended(rows: Tensor, mask: Tensor, causal: bool) -> Tensor:
    """Return attention in float64. A mask is ignored for a query to which it leaves no key."""
    query, keys, values = (
        part.transpose(1, 2) for part in rows.double().unflatten(2, (3, _HEADS, _WIDTH)).unbind(2)
    )
    scores = query @ keys.mT * 0.7**2
    mask = mask[:, None, None] if mask.dim() == 2 else mask[:, None] if mask.dim() == 3 else mask
    adds = mask.double() if mask.is_floating_point() else torch.zeros(mask.shape).double()
    adds = adds.masked_fill(adds < -9000 if mask.is_floating_point() else mask == 0, -_MANY)
    missing = max(0, scores.shape[-1] - adds.shape[-1])
    adds = torch.nn.functional.pad(adds, (0, missing), value=-_MANY)[..., : scores.shape[-1]]
    later = torch.full(scores.shape[-2:], -_MANY).double().triu(1) if causal else torch.zeros(()).double()
    total = (scores + adds + later).where((adds + later > -_MANY).any(-1, keepdim=True), scores + later)
    found: Tensor = total.softmax(-1) @ values
    return found.transpose(1, 2).flatten(2)


@pytest.mark.needs("InferenceBuilder")
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "not causal"])
@pytest.mark.parametrize("shape", _SHAPES)
def test_masks_of_every_kind_are_applied(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, shape: str, causal: bool
) -> None:
    """A mask adds to the scores, and hides where it is -9000 or less, False or 0; no result is NaN."""
    holds = Holds()
    generator = torch.Generator().manual_seed(11)
    for dtype in _kinds(accelerator)[: None if shape == "heads" else 1]:
        none = torch.empty(1, dtype=dtype, device=device)
        rows = torch.randn(_BATCH, _TOKENS, 3 * _HEADS * _WIDTH, generator=generator)
        rows[:, 1, : 2 * _HEADS * _WIDTH] *= (
            100.0  # a query and a key whose scores are beyond masks of -10000
        )
        rows = rows.to(dtype)
        for name, mask in _masks(_SHAPES[shape](_TOKENS), dtype):
            found = typed(op, "softmax_context", dtype)(
                rows.to(device), mask.to(device), 0, False, False, _HEADS, _HEADS, 0.7, causal, False, 0, False,
                0, 1, none, 10000.0, True,
            )[0]  # fmt: skip
            # Scores and their sum with a bias may be rounded to the type.
            _same(
                holds, f"{dtype}, {name}", found, _attended(rows, mask, causal), 40 * torch.finfo(dtype).eps
            )
    holds.expect(f"softmax_context with masks of {shape}", "add the mask, and hide keys exactly")


@pytest.mark.needs("EvoformerAttnBuilder")
@pytest.mark.parametrize("which", ["keys", "pairs", "keys and pairs"])
def test_evoformer_masks_leave_means(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, which: str
) -> None:
    """Biases that hide one key, all but one, or all, as padded rows have, give means of values, and gradients."""
    shape, holds = (1, 2, 5, 2, 4), Holds()
    generator = torch.Generator().manual_seed(13)
    for dtype, size, keys in itertools.product(
        _kinds(accelerator), (-1e9, -1e4, 3e4), (slice(1), slice(1, None), slice(None))
    ):
        q, k, v, go = (torch.randn(shape, generator=generator).to(dtype).double() for _ in range(4))
        q.zero_()  # float32 would lose scores that are added to such biases
        size = max(size, torch.finfo(dtype).min)
        biases = torch.zeros(1, 2, 1, 1, 5).double(), torch.zeros(1, 1, 2, 5, 5).double()
        for bias, name in zip(biases, ("keys", "pairs"), strict=True):
            bias[..., keys] = size if name in which else 0.0
        leaves = [tensor.requires_grad_() for tensor in (q, k, v, *biases)]
        scores = torch.einsum("...qhd,...khd->...hqk", q, k) / 2 + leaves[3] + leaves[4]
        out = torch.einsum("...hqk,...khd->...qhd", scores.softmax(-1), v)
        out.backward(go)
        ours = [leaf.detach().to(device, dtype) for leaf in leaves]
        found, lse = torch.full_like(ours[0], _NAN), torch.zeros(2, 2, 5, device=device)
        op.attention(*ours, found, lse)
        grads = [torch.full_like(ours[0], _NAN) for _ in range(3)]
        grads += [torch.zeros_like(bias, dtype=torch.float32) for bias in ours[3:]]
        op.attention_bwd(
            go.to(device, dtype), *ours[:3], found, lse, torch.zeros_like(lse), *ours[3:], *grads
        )
        what = f"{dtype}, {size:g} for {keys}"
        exact = [out.detach(), *(torch.zeros(()) if leaf.grad is None else leaf.grad for leaf in leaves)]
        names = ("output", "q", "k", "v", "bias1", "bias2")
        for name, one, wanted in zip(names, (found, *grads), exact, strict=True):
            _same(holds, f"{what}: {name}", one, wanted, 64 * torch.finfo(dtype).eps)
    holds.expect("evoformer_attn with masks", "subtract the largest score before exp, and divide by the sum")


# ---------------------------------------------------------------------------- norms and activations


def _norms(op: Any, x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Iterator[tuple[str, Tensor]]:
    out = torch.empty_like(x)
    op.layer_norm(out, x, gamma, beta, eps)
    yield "layer_norm", out
    out = torch.empty_like(x)
    op.post_layer_norm(out, x, x, gamma, beta, eps)
    yield "post_layer_norm", out
    out = torch.empty_like(x)
    op.rms_norm(out, x, gamma, eps)
    yield "rms_norm", out


@pytest.mark.needs("InferenceCoreBuilder")
@pytest.mark.parametrize("row", ROWS)
def test_extreme_rows_are_normed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, row: str
) -> None:
    """Norms of a row of extreme numbers, and of one number, are float64's."""
    holds = Holds()
    for dtype, width, eps in itertools.product(_kinds(accelerator), (8, 1), (1e-5, 1e-12)):
        x = torch.tensor([ROWS[row][:width]], dtype=torch.float64).to(dtype)
        gamma, beta = torch.full((width,), 1.5, dtype=dtype), torch.full((width,), 0.25, dtype=dtype)
        exact = x.double(), gamma.double(), beta.double()
        wanted = {
            "layer_norm": layer_norm(*exact, eps),
            "post_layer_norm": layer_norm(2 * exact[0], *exact[1:], eps),
            "rms_norm": rms_norm(*exact[:2], eps),
        }
        for name, found in _norms(op, x.to(device), gamma.to(device), beta.to(device), eps):
            allowed = 8 * torch.finfo(dtype).eps * wanted[name].abs().nan_to_num() + 1e-33
            _same(holds, f"{name} of {width}, {dtype}, {eps:g}", found, wanted[name], allowed)
    holds.expect(f"norms of {row}", _DO)


@pytest.mark.needs("InferenceCoreBuilder")
def test_extreme_numbers_are_activated(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """Activations of extreme numbers are float64's."""
    holds, kinds = Holds(), {0: "gelu", 1: "relu", 2: "silu", 6: "identity"}
    numbers = [*itertools.chain(*ROWS.values()), -88.0, -104.0, 104.0, -1e3, 1e13, -1e13]
    for dtype, (kind, name) in itertools.product(_kinds(accelerator), kinds.items()):
        x = torch.tensor([numbers], dtype=torch.float64).to(dtype)
        found, wanted = x.to(device, copy=True), activation(x.double(), name)
        op.bias_activation(found, None, kind)
        allowed = 8 * torch.finfo(dtype).eps * (wanted.abs().nan_to_num() + 0.1)
        _same(holds, f"{name} of {dtype}", found, wanted, allowed)
    holds.expect("bias_activation", _DO)


# --------------------------------------------------------------------------------------- quantizers


def _came_back(holds: Holds, what: str, back: Tensor, x: Tensor, step: float) -> None:
    """Expect numbers within a step; of a group with a NaN or an infinity, at least one that is not finite."""
    found = back.detach().cpu().double()
    if x.isfinite().all():
        _same(holds, what, found, x, step + 2e-7 * float(x.abs().max()) + 4e-37)
    else:
        holds[f"{what}: not finite, found {found.tolist()}"] = not found.isfinite().all()


@pytest.mark.needs("QuantizerBuilder")
@pytest.mark.parametrize("row", ROWS)
def test_extreme_groups_are_quantized(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, row: str
) -> None:
    """A group of extreme numbers comes back within a step, and one that is not finite is seen."""
    holds = Holds()
    for dtype, bits, kind in itertools.product(_kinds(accelerator), (8, 4), ("Symmetric", "Asymmetric")):
        x = torch.tensor([ROWS[row]], dtype=torch.float64).to(dtype)
        span = x.double().amax() - x.double().amin() if kind == "Asymmetric" else 2 * x.double().abs().amax()
        pair = op.quantize(x.to(device), 1, bits, getattr(op, kind))
        back = op.dequantize_fp32(*pair, 1, bits, getattr(op, kind))
        _came_back(holds, f"{kind}, {bits} bits, {dtype}", back, x.double(), float(span) / (2**bits - 2))
    holds.expect(f"the quantizer with {row}", _DO)


@pytest.mark.needs("FPQuantizerBuilder")
@pytest.mark.parametrize("row", ROWS)
def test_extreme_groups_are_quantized_as_floats(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, row: str
) -> None:
    """A group of extreme numbers comes back within the mantissa's precision, and one that is not finite is seen."""
    holds = Holds()
    formats = ((8, 3), (8, 2), (12, 7), (6, 2), (4, 1))
    for dtype, (bits, mantissa) in itertools.product(_kinds(accelerator), formats):
        x = torch.tensor([ROWS[row]], dtype=torch.float64).to(dtype)
        codes = torch.zeros(1, bits + 4, dtype=torch.uint8, device=device)
        back = torch.empty(1, 8, dtype=dtype, device=device)
        op.quantize(codes, x.to(device), 8, 0, bits, mantissa)
        op.dequantize(back, codes, 8, mantissa, bits - mantissa - 1)
        _came_back(
            holds, f"{bits} bits, {dtype}", back, x.double(), float(x.double().abs().max()) * 2.0**-mantissa
        )
    holds.expect(f"fp_quantizer with {row}", _DO)
