# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op results: by rule, for functions of every op: inputs stay, results are new, and strides change nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch

from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.test_op_refusals import CALLS, Call, copies

pytestmark = pytest.mark.tier("device")

Arguments = dict[str, Any]


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(101))


_QUANTIZER, _CORE, _INFERENCE = "QuantizerBuilder", "InferenceCoreBuilder", "InferenceBuilder"
_ROWS, _DATA, _STEPS = _numbers(6, 32), (_numbers(6, 32) * 40).to(torch.int8), _numbers(6, 2).abs()
_NORMED = dict.fromkeys(("normed", "out", "x", "y"), _ROWS) | {"gamma": _numbers(32)}
_TOKENS, _ONES = _numbers(2, 3, 32), torch.ones(32)
_GROUPS = {"groups": 6, "bits": 8, "kind": 1}
_DEVICES = {"pipeline": 1, "nodes": 1, "devices": 2}
_LINEAR = {"bias": _numbers(24), "add_bias": True, "flash": False, "heads": 4}
#: Calls of other functions, sizes and types than those whose refusals are tried, with arguments in their order.
_OTHERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (_QUANTIZER, "quantize", {"rows": _ROWS, **_GROUPS, "bits": 4}),
    (_QUANTIZER, "swizzle_quant", {"rows": _ROWS, **_GROUPS, "kind": 0, **_DEVICES, "devices": 3}),
    (_QUANTIZER, "loco_swizzle_quant", {"rows": _ROWS, "error_feedback": _ROWS, "beta": 0.5, **_GROUPS, **_DEVICES}),
    (_QUANTIZER, "dequantize", {"data": _DATA, "steps": _STEPS, **_GROUPS}),
    (
        _QUANTIZER, "quantized_reduction",
        {"data": _DATA, "steps": _STEPS, "groups": 6, "out": 3, "bits": 8, "kind": 1, "devices": 2},
    ),
    (_QUANTIZER, "ds_quantize_fp32", {"vals": _ROWS, "groups": 6, "bits": 4}),
    ("PackbitsBuilder", "packbits", {"rows": _ROWS, "count": 192, "rank": 0}),
    ("PackbitsBuilder", "unpackbits", {"data": _DATA.view(torch.uint8), "count": 192, "rank": 0}),
    (_CORE, "blas_linear", {"out": _numbers(6, 24), "x": _ROWS, "weight": _numbers(24, 32)}),
    (_CORE, "rms_pre_norm", {**_NORMED, "eps": 1e-5}),
    (_CORE, "pre_layer_norm", {**_NORMED, "beta": _numbers(32), "eps": 1e-5}),
    (_INFERENCE, "linear_layer_fp32", {"x": _TOKENS, "w": _numbers(24, 32), **_LINEAR, "turned": True, "theta": 1e4}),
    (_INFERENCE, "linear_layer_fp32", {"x": _TOKENS, "w": _numbers(32, 24), **_LINEAR, "turned": False, "theta": 1e4}),
    (
        _INFERENCE, "rms_qkv_gemm_fp32",
        {
            "x": _TOKENS, "weight": _numbers(24, 32), "scale": torch.zeros(1), "gamma": _numbers(32), "eps": 1e-5,
            "int8": False, "turned": True,
        },
    ),
    (
        _INFERENCE, "mlp_gemm_fp32",
        {
            "x": _TOKENS, "residual": _TOKENS, "input_bias": None, "first": _numbers(24, 32),
            "second": _numbers(32, 24), "bias": _ONES[:24], "gamma": _ONES, "beta": _ONES, "eps": 1e-5,
            "norm_first": True, "mlp_after": True, "scale": torch.zeros(1), "second_scale": torch.zeros(1),
            "int8": False, "activation": 1, "turned": True,
        },
    ),
)  # fmt: skip


_CALLS = [
    *CALLS,
    *(Call(builder, function, partial(copies, arguments)) for builder, function, arguments in _OTHERS),
]
#: A check of each builder, not of each function: some load for long.
_BUILDERS = needs.ops(dict.fromkeys(call.builder for call in _CALLS))


def _arguments(call: Call, device: torch.device, *, turned: bool = False) -> Arguments:
    """The call's arguments on the device, or others of the same sizes."""
    arguments = call.arguments()
    tensors = {name: _varied(value) for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    if "val_q" in tensors:
        tensors["val_q"][:, 64:] = torch.ones(1).view(torch.uint8)  # steps
    if turned:
        tensors = {name: value.flip(0 if value.shape[0] > 1 else -1) for name, value in tensors.items()}
    return arguments | {name: value.to(device) for name, value in tensors.items()}


def _varied(tensor: torch.Tensor) -> torch.Tensor:
    """Bytes of every value; other tensors as they are."""
    if tensor.dtype.itemsize > 1:
        return tensor
    return (torch.arange(tensor.numel()) * 37 % 251).to(tensor.dtype).view(tensor.shape)


@pytest.mark.parametrize("name", _BUILDERS)
def test_inputs_stay_and_results_are_new(op: Any, device: torch.device, name: str) -> None:
    """A call changes what it is to write alone; a second call, with other numbers, leaves the first one's results."""
    holds = Holds()
    for call in (each for each in _CALLS if each.builder == name):
        _call_twice(call, getattr(op, call.function), device, holds)
    holds.expect(name, "write what is to be written, and compute at each call")


def _results(call: Call, function: Any, arguments: Arguments) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return call.results(function, arguments)


def _call_twice(call: Call, function: Any, device: torch.device, holds: Holds) -> None:
    first, second = _arguments(call, device), _arguments(call, device, turned=True)
    before, found = copies(first), _results(call, function, first)
    for name, tensor in before.items():
        if isinstance(tensor, torch.Tensor) and name not in call.written:
            holds.same(f"{name} of {call.function} stays", first[name], tensor)
    kept = {name: tensor.clone() for name, tensor in found.items()}
    other = _results(call, function, second)
    for name, tensor in kept.items():
        holds[f"{name} of {call.function} stays when it is called again"] = _alike(found[name], tensor)
    changed = any(not _alike(other[name], tensor) for name, tensor in kept.items())
    # The indices are sorted already.
    holds[f"other arguments of {call.function} give other results"] = (
        changed or call.function == "token_sort_"
    )


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether they are of one type and shape, and near; what is no number is so in both."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    if not found.is_floating_point():
        return torch.equal(found.cpu(), wanted.cpu())
    ours, theirs = (tensor.detach().cpu().float() for tensor in (found, wanted))
    return torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True)


def _strided(tensor: torch.Tensor) -> Mapping[str, torch.Tensor]:
    """The same numbers in another order of memory, and with gaps between them."""
    shape = (*tensor.shape[:-1], 2 * tensor.shape[-1])
    part = torch.full(shape, 3, dtype=tensor.dtype, device=tensor.device)[..., ::2].copy_(tensor)
    return {"turned": tensor.transpose(0, -1).contiguous().transpose(0, -1), "with gaps": part}


@pytest.mark.parametrize("name", _BUILDERS)
def test_any_argument_may_have_strides(op: Any, device: torch.device, name: str) -> None:
    """Each tensor in turn, also one that is written, lies in another order or with gaps: read so, or refused."""
    holds = Holds()
    for call in (each for each in _CALLS if each.builder == name):
        if "_sr_" not in call.function:  # random numbers are drawn in the order of memory
            _call_with_strides(call, getattr(op, call.function), device, holds)
    holds.expect(name, "read strides, or a contiguous copy; do not take data_ptr() of anything")


def _call_with_strides(call: Call, function: Any, device: torch.device, holds: Holds) -> None:
    arguments = _arguments(call, device)
    wanted = {name: each.clone() for name, each in _results(call, function, copies(arguments)).items()}
    for name, tensor in arguments.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        for form, strided in _strided(tensor).items():
            try:
                found = _results(call, function, {**copies(arguments), name: strided})
            except Exception:  # refused
                continue
            alike = found.keys() == wanted.keys() and all(_alike(found[key], wanted[key]) for key in wanted)
            holds[f"{name} of {call.function} {form}"] = alike
