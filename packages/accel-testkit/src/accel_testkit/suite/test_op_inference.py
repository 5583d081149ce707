# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op inference: norms, products and activations of both inference ops, beside float64; also large ones, in place."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_ops.reference import Attention, activation, layer_norm, rms_norm, rotated
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.inference_functions import typed

pytestmark = pytest.mark.tier("device")

_TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1.6e-1}
_SHAPES = [(2, 3, 16), (1, 1, 8), (5, 40)]
_EPSILONS = [1e-6, 0.5]
#: Values of deepspeed.inference.v2.inference_utils.ActivationType.
_KINDS = {0: "gelu", 1: "relu", 2: "silu", 6: "identity"}
_GATES = {3: "gelu", 4: "relu", 5: "silu"}
_SILU_GATE = 5
#: Beyond the blocks that a launch of many devices has in one dimension.
_MANY = (1 << 16) + 3
#: Values of deepspeed.utils.types.ActivationFuncType.
_MLP_KINDS = {1: "gelu", 2: "relu"}

Pairs = list[tuple[Any, torch.Tensor]]


class Numbers:
    """Random numbers in [-1, 1): on the host in float64, and the same on the device in the type under test."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator().manual_seed(31)

    def __call__(self, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = torch.rand(shape, generator=self.generator, dtype=torch.float64) * 2 - 1
        ours = numbers.to(self.device, self.dtype)
        return ours.cpu().double(), ours

    def output(self, *shape: int) -> torch.Tensor:
        """Return a NaN-filled output tensor."""
        return torch.full(shape, torch.nan, device=self.device, dtype=self.dtype)


def _rms_norm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for shape, eps in itertools.product(_SHAPES, _EPSILONS):
        (x, x_), (r, r_), (g, g_) = new(*shape), new(*shape), new(shape[-1])
        pairs.append((op.rms_norm(x_, g_, eps), rms_norm(x, g, eps)))
        pairs += zip(op.pre_rms_norm(x_, r_, g_, eps), (rms_norm(x + r, g, eps), x + r), strict=True)
        pairs += [(x_, x), (r_, r)]  # inputs stay
    return pairs


def _rms_qkv_gemm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for outer, transposed, eps in itertools.product((24, 16), (True, False), _EPSILONS):
        (x, x_), (g, g_), (w, w_) = new(2, 3, 16), new(16), new(*((outer, 16) if transposed else (16, outer)))
        norm = rms_norm(x, g, eps)
        found = typed(op, "rms_qkv_gemm", new.dtype)(x_, w_, new.output(1), g_, eps, False, transposed)
        pairs += zip(found, (norm @ (w.t() if transposed else w), norm), strict=True)
    return pairs


def _linear_layer(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    # Of a square one the shape does not say which way it is.
    for outer, transposed, biased in itertools.product((24, 16), (True, False), (True, False)):
        (x, x_), (b, b_), (w, w_) = (
            new(2, 3, 16), new(outer), new(*((outer, 16) if transposed else (16, outer)))
        )  # fmt: skip
        found = typed(op, "linear_layer", new.dtype)(x_, w_, b_, biased, False, 4, transposed, 10000.0)
        pairs.append((found, x @ (w.t() if transposed else w) + (b if biased else 0)))
    return pairs


def _mlp_gemm(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for kind, after, transposed, biased in itertools.product(_MLP_KINDS, *[(True, False)] * 3):
        (x, x_), (r, r_), (ib, ib_), (b, b_), (g, g_), (bt, bt_) = (
            new(2, 3, 16), new(2, 3, 16), new(16), new(24), new(16), new(16)
        )  # fmt: skip
        (w1, w1_), (w2, w2_) = new(16, 24), new(24, 16)
        if transposed:
            w1_, w2_ = w1_.t().contiguous(), w2_.t().contiguous()
        start = x + r + (ib if biased else 0) if after else x
        norm = layer_norm(start, g, bt, 1e-3)
        inner = biased or after  # models without any bias have none here either
        found = typed(op, "mlp_gemm", new.dtype)(
            x_, r_, ib_ if biased else None, w1_, w2_, b_ if inner else None, g_, bt_, 1e-3, True, after, new.output(1),
            new.output(1), False, kind, transposed,
        )  # fmt: skip
        wanted = activation(norm @ w1 + (b if inner else 0), _MLP_KINDS[kind]) @ w2
        pairs += zip(found, (wanted, norm), strict=True)
        pairs += [(x_, x), (r_, r)]  # inputs stay
    return pairs


def _apply_rotary_pos_emb(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for rotary, theta in itertools.product((8, 4), (1e4, 2.0)):
        (q, q_), (k, k_) = new(2, 4, 5, 8), new(2, 4, 5, 8)  # batch, heads, tokens, width
        found = op.apply_rotary_pos_emb(q_, k_, rotary, 3, 4, True, theta)
        model = Attention(rotary=rotary, theta=theta)
        pairs += [(ours, rotated(x, 3, model)) for ours, x in zip(found, (q, k), strict=True)]
        pairs += [(q_, q), (k_, k)]  # inputs stay
    return pairs


def _core_norms(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for shape, eps in itertools.product([(6, 16), (1, 40)], _EPSILONS):
        (x, x_), (r, r_), (g, g_), (b, b_) = new(*shape), new(*shape), new(shape[-1]), new(shape[-1])
        rms, layer = rms_norm(x + r, g, eps), layer_norm(x + r, g, b, eps)
        for name, given, wanted in (
            ("rms_norm", (x_, g_), [rms_norm(x, g, eps)]),
            ("rms_pre_norm", (x_, r_, g_), [rms, x + r]),
            ("layer_norm", (x_, g_, b_), [layer_norm(x, g, b, eps)]),
            ("pre_layer_norm", (r_, x_, g_, b_), [x + r, layer]),
            ("post_layer_norm", (x_, r_, g_, b_), [layer]),
        ):
            # New for each: a former result may be the right one.
            found = [new.output(*shape) for _ in wanted]
            getattr(op, name)(*found, *given, eps)
            pairs += zip(found, wanted, strict=True)
        pairs += [(x_.clone(), x), (r_.clone(), r)]
        op.rms_pre_norm(x_, r_, x_, r_, g_, eps)  # in place, as the engine calls it
        pairs += [(x_, rms), (r_, x + r)]
    return pairs


def _core_products(op: Any, new: Numbers) -> Pairs:
    op.create_handle()
    pairs: Pairs = []
    # Of a square one the shape does not say which way it is.
    for inner, outer in ((16, 24), (33, 7), (16, 16)):
        (x, x_), (w, w_), out = new(5, inner), new(outer, inner), new.output(5, outer)
        op.blas_linear(out, x_, w_)
        pairs.append((out, x @ w.t()))
    return pairs


def _core_activations(op: Any, new: Numbers) -> Pairs:
    pairs: Pairs = []
    for biased in (True, False):
        for kind, name in _KINDS.items():
            (x, x_), (b, b_) = new(5, 24), new(24)
            op.bias_activation(x_, b_ if biased else None, kind)
            pairs.append((x_, activation(x + (b if biased else 0), name)))
        for kind, name in _GATES.items():
            (x, x_), (b, b_), out = new(5, 24), new(24), new.output(5, 12)
            op.gated_activation(out, x_, b_ if biased else None, kind)
            wide = x + (b if biased else 0)
            pairs += [(out, activation(wide[:, 0::2], name) * wide[:, 1::2]), (x_, x)]
    return pairs


def _core_many_rows(op: Any, new: Numbers) -> Pairs:
    (x, x_), (g, g_), (b, b_), (w, w_) = new(_MANY, 8), new(8), new(8), new(4, 8)
    product, gated, *norms = (new.output(_MANY, width) for width in (4, 4, 8, 8))
    op.blas_linear(product, x_, w_)
    op.gated_activation(gated, x_, None, _SILU_GATE)
    op.rms_norm(norms[0], x_, g_, 1e-3)
    op.layer_norm(norms[1], x_, g_, b_, 1e-3)
    wanted = (x @ w.t(), activation(x[:, 0::2], _GATES[_SILU_GATE]) * x[:, 1::2], rms_norm(x, g, 1e-3))
    return list(zip((product, gated, *norms), (*wanted, layer_norm(x, g, b, 1e-3)), strict=True))


#: Functions by what they are: (class name of the builder, calls).
CASES: dict[str, tuple[str, Callable[[Any, Numbers], Pairs]]] = {
    "rms_norm, pre_rms_norm": ("InferenceBuilder", _rms_norm),
    "rms_qkv_gemm": ("InferenceBuilder", _rms_qkv_gemm),
    "linear_layer": ("InferenceBuilder", _linear_layer),
    "mlp_gemm": ("InferenceBuilder", _mlp_gemm),
    "apply_rotary_pos_emb": ("InferenceBuilder", _apply_rotary_pos_emb),
    "norms of the core": ("InferenceCoreBuilder", _core_norms),
    "products of the core": ("InferenceCoreBuilder", _core_products),
    "activations of the core": ("InferenceCoreBuilder", _core_activations),
    "many rows of the core": ("InferenceCoreBuilder", _core_many_rows),
}


@pytest.mark.parametrize("dtype", _TOLERANCE, ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=pytest.mark.needs(builder)) for name, (builder, _) in CASES.items()]
)
def test_functions_are_right(accelerator: DeepSpeedAccelerator, case: str, dtype: torch.dtype) -> None:
    """Each function gives what its definition gives in float64, for all its flags, and leaves its inputs alone."""
    needs.types(accelerator, dtype)
    name, calls = CASES[case]
    op = accelerator.create_op_builder(name).load()
    pairs = calls(op, Numbers(torch.device(accelerator.device()), dtype))
    accelerator.synchronize()
    holds = Holds()
    for number, (found, wanted) in enumerate(pairs):
        what = f"tensor {number}, within {_TOLERANCE[dtype]:g} of float64"
        holds.near(what, found, wanted, _TOLERANCE[dtype])
        holds.equal(f"the type of tensor {number}", found.dtype, dtype)
    do = f"compare the op that {name} loads with the definition of the function"
    holds.expect(f"{case} of {name} in {dtype}", do)


_EPS = 1e-5
#: Roundings of the type that a result may be apart, in units in the last place: one at the end, and float32's.
_ROUNDINGS = 1.02
_SHAPE = (3, 5, 48)
_GAMMA = torch.linspace(0.5, 2, _SHAPE[-1])
_DO = "compute norms in float32, from inputs that were read before the output is written"
_core = pytest.mark.needs("InferenceCoreBuilder")


def _half(accelerator: DeepSpeedAccelerator) -> list[torch.dtype]:
    return [kind for kind in (torch.float16, torch.bfloat16) if kind in accelerator.supported_dtypes()]


def _numbers(dtype: torch.dtype, seed: int, scale: float = 900.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(_SHAPE, generator=generator) - 0.4) * scale).to(dtype)


def _near(holds: Holds, what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    holds.near(what, found, wanted, 3 * torch.finfo(found.dtype).eps * (1 + wanted.abs()))


@pytest.mark.needs("InferenceBuilder")
def test_large_activations_are_normed(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """`rms_norm` and `pre_rms_norm` of half-precision numbers in the hundreds are as of float64."""
    holds = Holds()
    for dtype in _half(accelerator):
        x, r, gamma = _numbers(dtype, 1), _numbers(dtype, 2), _GAMMA.to(dtype)
        total = x.float().add(r.float()).to(dtype).double()
        norm = op.rms_norm(x.to(device), gamma.to(device), _EPS)
        normed, summed = op.pre_rms_norm(x.to(device), r.to(device), gamma.to(device), _EPS)
        _near(holds, f"rms_norm of {dtype}", norm, rms_norm(x.double(), gamma.double(), _EPS))
        _near(holds, f"pre_rms_norm of {dtype}", normed, rms_norm(total, gamma.double(), _EPS))
        _near(holds, f"the sum of {dtype}", summed, total)
    holds.expect("transformer_inference", _DO)


#: Norm -> inputs that it adds up, its call with output, inputs, weight and bias, and what the definition gives.
_NORMS: dict[str, tuple[int, Any, Any]] = {
    "post_layer_norm": (2, lambda op, out, *given: op.post_layer_norm(out, *given, _EPS), layer_norm),
    "layer_norm": (1, lambda op, out, *given: op.layer_norm(out, *given, _EPS), layer_norm),
    "rms_norm": (1, lambda op, out, x, g, b: op.rms_norm(out, x, g, _EPS), lambda x, g, b, e: rms_norm(x, g, e)),
}  # fmt: skip
#: The same of norms that give the sum too: their call with sum, norm, residual, other input, weight and bias.
_WITH_SUMS: dict[str, tuple[Any, Any]] = {
    "pre_layer_norm": (lambda op, *given: op.pre_layer_norm(*given, _EPS), layer_norm),
    "rms_pre_norm": (
        lambda op, out, normed, residual, other, g, b: op.rms_pre_norm(normed, out, other, residual, g, _EPS),
        lambda x, g, b, e: rms_norm(x, g, e),
    ),
}


@_core
def test_norms_may_be_written_over_their_inputs(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """Norms of large half-precision numbers are right, in new memory and over each of the inputs."""
    holds = Holds()
    for dtype, (name, (count, norm, reference)) in itertools.product(_half(accelerator), _NORMS.items()):
        inputs = [_numbers(dtype, 3), _numbers(dtype, 4)][:count]
        weights = [_GAMMA.to(dtype), _GAMMA.flip(0).to(dtype)]
        total = sum(each.double() for each in inputs)
        wanted = reference(total, *(weight.double() for weight in weights), _EPS)
        for where in ("new memory", *range(count)):
            given = [each.to(device, copy=True) for each in inputs]
            out = given[where] if isinstance(where, int) else torch.full_like(given[0], torch.nan)
            norm(op, out, *given, *(weight.to(device) for weight in weights))
            _near(holds, f"{name} of {dtype} into {where}", out, wanted)
    holds.expect("inference_core_ops", _DO)


@_core
def test_large_means_are_taken_off(op: Any, device: torch.device) -> None:
    """`layer_norm` of float32 numbers with a mean far above their deviation is as of float64."""
    holds, beta = Holds(), _GAMMA.flip(0)
    for mean in (3e2, -3e3):
        x = _numbers(torch.float32, 5, 2.0) + mean
        out = torch.empty(_SHAPE, device=device)
        op.layer_norm(out, x.to(device), _GAMMA.to(device), beta.to(device), _EPS)
        wanted = layer_norm(x.double(), _GAMMA.double(), beta.double(), _EPS)
        # The mean itself is rounded to float32.
        holds.near(f"a mean of {mean:g}", out, wanted, 4 * abs(mean) * torch.finfo(torch.float32).eps + 1e-5)
    holds.expect("layer_norm", "take the mean off before squaring: E[x^2] - E[x]^2 cancels")


@_core
def test_residuals_may_be_written_over(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device
) -> None:
    """The sum that `pre_layer_norm` and `rms_pre_norm` return beside its norm may take the place of the residual."""
    holds = Holds()
    for dtype, (name, (norm, reference)) in itertools.product(_half(accelerator), _WITH_SUMS.items()):
        x, y, weights = _numbers(dtype, 3), _numbers(dtype, 4), [_GAMMA.to(dtype), _GAMMA.flip(0).to(dtype)]
        total = x.double() + y.double()
        wanted = reference(total, *(weight.double() for weight in weights), _EPS)
        for where in ("new memory", "the residual"):
            residual, other = x.to(device, copy=True), y.to(device, copy=True)
            out = residual if where == "the residual" else torch.full_like(residual, torch.nan)
            normed = torch.full_like(residual, torch.nan)
            norm(op, out, normed, residual, other, *(weight.to(device) for weight in weights))
            _near(holds, f"{name} of {dtype} into {where}: the sum", out, total)
            _near(holds, f"{name} of {dtype} into {where}", normed, wanted)
    holds.expect("inference_core_ops", _DO)


@_core
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_activations_round_once(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, dtype: torch.dtype
) -> None:
    """A gate times a value of half precision is computed in float32 at least, with a bias and without."""
    needs.types(accelerator, dtype)
    generator, holds = torch.Generator().manual_seed(43), Holds()
    x, bias = ((torch.rand(shape, generator=generator) * 4 - 2).to(dtype) for shape in ((64, 48), (48,)))
    for kind, given in itertools.product(_GATES, (bias, None)):
        out = torch.full((64, 24), torch.nan, dtype=dtype, device=device)
        op.gated_activation(out, x.to(device), None if given is None else given.to(device), kind)
        wide = x.double() if given is None else x.double() + given.double()
        exact = activation(wide[:, 0::2], _GATES[kind]) * wide[:, 1::2]
        rounding = exact.abs() * torch.finfo(dtype).eps / 2 + 4e-7 * (1 + exact.abs())
        what = f"{_GATES[kind]}, bias {given is not None}: one rounding"
        holds.near(what, out, exact, _ROUNDINGS * rounding)
    do = "convert half-precision tensors to float32, compute, and round at the end"
    holds.expect(f"gated_activation in {dtype}", do)
