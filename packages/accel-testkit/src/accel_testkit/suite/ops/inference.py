# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Specs of `transformer_inference` and `inference_core_ops`: norms, products, rotation and activations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import torch

from accel_ops.reference import Attention, activation, layer_norm, rms_norm, rotated
from accel_testkit.suite.ops.spec import (
    Allowed,
    Numbers,
    OpSpec,
    Sample,
    Tensor,
    extremes,
    nothing_yet,
    once,
    roundings,
    sums,
)

_INFERENCE, _CORE = "InferenceBuilder", "InferenceCoreBuilder"
_SHAPES = [(2, 3, 16), (1, 1, 8), (5, 40)]
_EPSILONS = [1e-6, 0.5]
#: Values of deepspeed.inference.v2.inference_utils.ActivationType.
_KINDS = {0: "gelu", 1: "relu", 2: "silu", 6: "identity"}
_GATES = {3: "gelu", 4: "relu", 5: "silu"}
#: Values of deepspeed.utils.types.ActivationFuncType.
_MLP_KINDS = {1: "gelu", 2: "relu"}
#: Beyond the blocks that a launch of many devices has in one dimension.
_MANY = (1 << 16) + 3


def _large(new: Numbers) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield half-precision numbers in the hundreds, whose squares the type does not hold, and weights."""
    if new.dtype.itemsize == 2:
        weight = new.rounded(torch.linspace(0.5, 2, 48, dtype=torch.float64))
        x, other = (new.rounded(new(3, 5, 48, times=450) + 90) for _ in range(2))
        yield x, other, weight, weight.flip(0)


# ------------------------------------------------------------------------------------ transformer


def _rms_norms(residual: bool, new: Numbers) -> Iterator[Sample]:
    cases = [(new(*shape), new(*shape), new(shape[-1]), eps, sums) for shape in _SHAPES for eps in _EPSILONS]
    for x, r, g, eps, allowed in [*cases, *((x, r, g, 1e-5, roundings(3)) for x, r, g, _ in _large(new))]:
        total = new.rounded(x + r)
        results = [rms_norm(total, g, eps), total] if residual else [rms_norm(x, g, eps)]
        yield Sample(
            {"x": x, **({"residual": r} if residual else {}), "gamma": g, "eps": eps}, results, allowed
        )


def _rms_qkv_gemm(new: Numbers) -> Iterator[Sample]:
    for outer, transposed, eps in itertools.product((24, 16), (True, False), _EPSILONS):
        x, g, w = new(2, 3, 16), new(16), new(*((outer, 16) if transposed else (16, outer)))
        norm = rms_norm(x, g, eps)
        yield Sample(
            {
                "x": x, "weight": w, "scale": nothing_yet(1), "gamma": g, "eps": eps, "int8": False,
                "transposed": transposed,
            },
            [norm @ (w.t() if transposed else w), norm], sums,
        )  # fmt: skip


def _linear_layer(new: Numbers) -> Iterator[Sample]:
    # Of a square one the shape does not say which way it is.
    for outer, transposed, biased in itertools.product((24, 16), (True, False), (True, False)):
        x, b, w = new(2, 3, 16), new(outer), new(*((outer, 16) if transposed else (16, outer)))
        yield Sample(
            {
                "x": x, "weight": w, "bias": b, "add_bias": biased, "flash": False, "heads": 4,
                "transposed": transposed, "theta": 10000.0,
            },
            [x @ (w.t() if transposed else w) + (b if biased else 0)], sums,
        )  # fmt: skip


def _mlp_gemm(new: Numbers) -> Iterator[Sample]:
    for kind, after, transposed, biased in itertools.product(_MLP_KINDS, *[(True, False)] * 3):
        x, r, ib, b, g, bt = (new(*shape) for shape in ((2, 3, 16), (2, 3, 16), (16,), (24,), (16,), (16,)))
        w1, w2 = new(16, 24), new(24, 16)
        norm = layer_norm(x + r + (ib if biased else 0) if after else x, g, bt, 1e-3)
        inner = biased or after  # models without any bias have none here either
        given = (w1.t().contiguous(), w2.t().contiguous()) if transposed else (w1, w2)
        yield Sample(
            {
                "x": x, "residual": r, "input_bias": ib if biased else None, "first": given[0], "second": given[1],
                "bias": b if inner else None, "gamma": g, "beta": bt, "eps": 1e-3, "norm_first": True,
                "mlp_after": after, "scale": nothing_yet(1), "second_scale": nothing_yet(1), "int8": False,
                "activation": kind, "transposed": transposed,
            },
            [activation(norm @ w1 + (b if inner else 0), _MLP_KINDS[kind]) @ w2, norm], sums,
        )  # fmt: skip


def _apply_rotary_pos_emb(new: Numbers) -> Iterator[Sample]:
    for rotary, theta in itertools.product((8, 4), (1e4, 2.0)):
        q, k = new(2, 4, 5, 8), new(2, 4, 5, 8)  # batch, heads, tokens, width
        model = Attention(rotary=rotary, theta=theta)
        yield Sample(
            {"q": q, "k": k, "rotary": rotary, "offset": 3, "heads": 4, "halves": True, "theta": theta},
            [rotated(q, 3, model), rotated(k, 3, model)], sums,
        )  # fmt: skip


# --------------------------------------------------------------------------------------- the core

#: Arguments of each norm, in order. `out` is the norm, `sum` that of both inputs.
_NORMS = {
    "rms_norm": ("out", "x", "gamma"),
    "layer_norm": ("out", "x", "gamma", "beta"),
    "post_layer_norm": ("out", "x", "residual", "gamma", "beta"),
    "pre_layer_norm": ("sum", "out", "residual", "x", "gamma", "beta"),
    "rms_pre_norm": ("out", "sum", "x", "residual", "gamma"),
}


def _written(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name in ("out", "sum"))


def _core_norms(names: tuple[str, ...], new: Numbers) -> Iterator[Sample]:
    def sample(
        inputs: tuple[Tensor, Tensor, Tensor, Tensor],
        eps: float,
        allowed: Allowed,
        what: str = "",
        **alias: str,
    ) -> Sample:
        x, residual, gamma, beta = inputs
        total = x + residual if "residual" in names else x
        norm = layer_norm(total, gamma, beta, eps) if "beta" in names else rms_norm(total, gamma, eps)
        given = {
            "x": x, "residual": residual, "gamma": gamma, "beta": beta, "out": nothing_yet(*x.shape),
            "sum": nothing_yet(*x.shape),
        }  # fmt: skip
        results = [norm if name == "out" else total for name in _written(names)]
        return Sample({**{name: given[name] for name in names}, "eps": eps}, results, allowed, what, alias)

    many = (_MANY, 8) if "residual" not in names else (3, 16)
    for shape, eps in itertools.product([(6, 16), (1, 40), many], _EPSILONS):
        yield sample((new(*shape), new(*shape), new(shape[-1]), new(shape[-1])), eps, sums)
    places = ({"sum": "residual"},) if "sum" in names else ({"out": "x"}, {"out": "residual"})
    if names == _NORMS["rms_pre_norm"]:  # as the engine calls it
        places = (*places, {"out": "x", "sum": "residual"})
    for given in _large(new):
        for alias in ({}, *(each for each in places if {*each.values()} <= {*names})):
            yield sample(
                given, 1e-5, roundings(3), f"numbers in the hundreds, {alias or 'new memory'}", **alias
            )
    if "sum" in names:
        return
    for mean in (3e2, -3e3) if "beta" in names and new.dtype == torch.float32 else ():
        x, gamma = new(3, 5, 48), torch.linspace(0.5, 2, 48, dtype=torch.float64).float().double()
        # The mean itself is rounded to float32.
        off: Allowed = lambda wanted, dtype, mean=mean: 4 * abs(mean) * torch.finfo(dtype).eps + 1e-5  # type: ignore[misc]  # noqa: E731
        yield sample((new.rounded(x + mean), x * 0, gamma, gamma.flip(0)), 1e-5, off, f"a mean of {mean:g}")
    tight: Allowed = lambda wanted, dtype: 8 * torch.finfo(dtype).eps * wanted.abs() + 1e-33  # noqa: E731
    for width, eps in itertools.product((8, 1), (1e-5, 1e-12)):
        gamma, beta = (torch.full((width,), number).double() for number in (1.5, 0.25))
        for what, x in extremes(new, width):
            yield sample((x, x, gamma, beta), eps, tight, f"{what}, {width} of them, epsilon {eps:g}")


def _blas_linear(new: Numbers) -> Iterator[Sample]:
    for rows, inner, outer in ((5, 16, 24), (5, 33, 7), (5, 16, 16), (_MANY, 8, 4)):
        x, w = new(rows, inner), new(outer, inner)
        yield Sample({"out": nothing_yet(rows, outer), "x": x, "weight": w}, [x @ w.t()], sums)


def _bias_activation(new: Numbers) -> Iterator[Sample]:
    for biased, (kind, name) in itertools.product((True, False), _KINDS.items()):
        x, b = new(5, 24), new(24)
        arguments = {"x": x, "bias": b if biased else None, "kind": kind}
        yield Sample(arguments, [activation(x + (b if biased else 0), name)], sums)
    more = torch.tensor([[-88.0, -104.0, 104.0, -1e3, 1e13, -1e13]], dtype=torch.float64)
    for what, x in (*extremes(new), ("beyond exp()", new.rounded(more))):
        for kind, name in _KINDS.items():
            yield Sample({"x": x, "bias": None, "kind": kind}, [activation(x, name)], roundings(8, 0.1), what)


def _gated_activation(new: Numbers) -> Iterator[Sample]:
    shapes = (6, 64), (5, 24), (64, 48)  # the first as every operator takes it: SiLU, no bias
    for biased, (kind, name), shape in itertools.product((False, True), reversed(_GATES.items()), shapes):
        x, b = new(*shape, times=2), new(shape[1], times=2)
        wide = x + (b if biased else 0)
        out, bias = nothing_yet(shape[0], shape[1] // 2), b if biased else None
        arguments = {"out": out, "x": x, "bias": bias, "kind": kind}
        allowed = sums if new.dtype == torch.float32 else once
        yield Sample(arguments, [activation(wide[:, 0::2], name) * wide[:, 1::2]], allowed)
    x, out = new(_MANY, 8), nothing_yet(_MANY, 4)
    wanted = activation(x[:, 0::2], "silu") * x[:, 1::2]
    yield Sample({"out": out, "x": x, "bias": None, "kind": 5}, [wanted], sums)


_of_core = partial(OpSpec, _CORE, rejects=False)
_of_transformer = partial(OpSpec, _INFERENCE, rejects=False)
SPECS = (
    _of_transformer("rms_norm", partial(_rms_norms, False)),
    _of_transformer("pre_rms_norm", partial(_rms_norms, True)),
    _of_transformer("rms_qkv_gemm", _rms_qkv_gemm, typed=True),
    _of_transformer("linear_layer", _linear_layer, typed=True),
    _of_transformer("mlp_gemm", _mlp_gemm, typed=True),
    _of_transformer("apply_rotary_pos_emb", _apply_rotary_pos_emb),
    *(
        _of_core(function, partial(_core_norms, names), written=_written(names))
        for function, names in _NORMS.items()
    ),
    _of_core("blas_linear", _blas_linear, written=("out",)),
    _of_core("bias_activation", _bias_activation, written=("x",)),
    _of_core("gated_activation", _gated_activation, written=("out",)),
)
#: Upstream's functions of `transformer_inference`, with their float type where upstream has one of each.
TRANSFORMER = (
    "allocate_workspace_fp32", "release_workspace", "repeat_kv_cache_fp32", "reset_cache", "retake_workspace",
    "softmax_context_fp32",
    *(spec.function + "_fp32" * spec.typed for spec in SPECS if spec.builder == _INFERENCE),
)  # fmt: skip
#: Those of `inference_core_ops`.
CORE = ("create_handle", *(spec.function for spec in SPECS if spec.builder == _CORE))
