# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op calls, by rule: arguments that do not fit are refused; inputs stay, results are new, strides change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from accel_core.errors import AccelError
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops import normal

pytestmark = pytest.mark.tier("device")

TYPE, FLOAT = "another type", "another float type"
SHORTER, FEWER, MORE, NONE = "one shorter", "one row fewer", "one dimension more", "no dimension"


#: Function -> the arguments that it writes.
_WRITES: dict[str, tuple[str, ...]] = {
    "attention": ("o", "lse"),
    "attention_bwd": ("delta", "gq", "gk", "gv", "gb1", "gb2"),
    "token_sort_": ("unsorted_token_ids",),
    "token_scatter_": ("all_activations",),
    "loco_swizzle_quant": ("error_feedback",),
    "loco_quantized_reduction": ("error_feedback",),
    "blas_linear": ("out",),
    **dict.fromkeys(("rms_pre_norm", "pre_layer_norm"), ("normed", "out")),
    **dict.fromkeys(
        ("ds_quantize", "ds_quantize_fp32", "ds_quantize_asym", "ds_sr_quantize", "ds_sr_quantize_asym"),
        ("vals",),
    ),
}
#: Of an op that has a function of this name, too.
_OF_FORMATS = {"quantize": ("out",), "dequantize": ("val",), "selective_dequantize": ("val",)}


@dataclass(frozen=True)
class Call:
    """A call that is right.

    arguments: makes the arguments, by name, in order; tensors on the host.
    numbers:   argument -> what is wrong with it -> a value that has to be refused.
    together:  what is wrong -> several arguments, changed together, that have to be refused.
    taken:     (argument, change) that is right, too.
    sizes:     the error may name a size in place of an argument.
    named:     arguments that the error names, whatever else it may leave out.
    said:      a pattern of the function's name in errors, if it is not that of the function.
    """

    builder: str
    function: str
    arguments: Callable[[], dict[str, Any]]
    numbers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    together: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    taken: frozenset[tuple[str, str]] = frozenset()
    sizes: bool = False
    named: frozenset[str] = frozenset()
    said: str = ""

    @property
    def written(self) -> tuple[str, ...]:
        """The arguments that it writes."""
        found = _OF_FORMATS.get(self.function, ()) if self.builder == "FPQuantizerBuilder" else ()
        return found or _WRITES.get(self.function, ())

    def results(self, function: Any, arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return what the function returns and writes, by name."""
        returned = function(*arguments.values())
        listed = [returned] if isinstance(returned, torch.Tensor) else [*(returned or ())]
        return {f"result {place}": tensor for place, tensor in enumerate(listed)} | {
            name: arguments[name] for name in self.written
        }


def copies(arguments: Mapping[str, Any], device: torch.device | None = None) -> dict[str, Any]:
    """Return the arguments with a copy of each tensor, on the device or where it is."""
    return {
        name: value.clone().to(device or value.device) if isinstance(value, torch.Tensor) else value
        for name, value in arguments.items()
    }


def _takes(**changes: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    pairs = {(name, change) for name, some in changes.items() for change in some}
    return frozenset(pairs | {(name, FLOAT) for name, change in pairs if change == TYPE})


def _half(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1, torch.Size(shape).numel()).view(shape).half()


def _ids(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.int32) % shape[-1]).view(shape)


def _images(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _half(8) if "bias" in name else _half(2, 8, 3, 5) for name in names}


def _codes(rows: int, width: int) -> torch.Tensor:
    return torch.ones(rows, width, dtype=torch.uint8)


def _evoformer() -> dict[str, Any]:
    given = {name: _like_q() for name in "qkv"}
    return given | {"bias1": _half(2, 3, 1, 1, 8), "bias2": _half(2, 1, 2, 8, 8)}


def _like_q() -> torch.Tensor:
    return _half(2, 3, 8, 2, 4)


def _attention() -> dict[str, Any]:
    return _evoformer() | {"o": _like_q(), "lse": torch.zeros(6, 2, 8)}


def _attention_bwd() -> dict[str, Any]:
    q, k, v, bias1, bias2 = _evoformer().values()
    return {
        "go": _like_q(), "q": q, "k": k, "v": v, "o": _like_q(), "lse": torch.zeros(6, 2, 8),
        "delta": torch.zeros(6, 2, 8), "bias1": bias1, "bias2": bias2, "gq": _like_q(), "gk": _like_q(),
        "gv": _like_q(), "gb1": bias1.float(), "gb2": bias2.float(),
    }  # fmt: skip


_LTD, _SPATIAL, _PACKBITS = "RandomLTDBuilder", "SpatialInferenceBuilder", "PackbitsBuilder"
_EVOFORMER, _FORMATS, _QUANTIZER = "EvoformerAttnBuilder", "FPQuantizerBuilder", "QuantizerBuilder"
_SYMMETRIC, _ASYMMETRIC = 0, 1
_IN_8_BITS = {"num_bits": 8, "quant_type": _SYMMETRIC}
#: The quantizer takes any shape.
_ANY_SHAPE = (FEWER, MORE)
_GROUPS: dict[str, Mapping[str, Any]] = {"groups": {"3": 3, "0": 0, "-4": -4}}
_BITS: dict[str, Mapping[str, Any]] = {"num_bits": {"5": 5, "16": 16}}
_SCALES = (TYPE, MORE)
_OF_ANY = (TYPE, FLOAT, MORE)
#: What the functions of `fp_quantizer` are given beside their tensors.
_E4M3 = {"group_size": 64, "q_mantisa_bits": 3, "q_exponent_bits": 4}
_NO_E4M3: dict[str, Mapping[str, Any]] = {
    "group_size": {"0": 0, "48 of 256": 48},
    "q_exponent_bits": {"5": 5},
}


def _integers(*shape: int) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()) % 100 - 50).to(torch.int8).view(shape)


def _loco_swizzle() -> dict[str, Any]:
    given = {"input_vals": _half(4, 16), "error_feedback": torch.zeros(64), "err_beta": 0.5, "groups": 4}
    return given | _IN_8_BITS | {"pipeline_size": 1, "nodes": 2, "devices_per_node": 2}


def _loco_reduction() -> dict[str, Any]:
    given = {"input_vals": _integers(4, 16), "input_scales": torch.ones(4, 1)}
    feedback = {"error_feedback": torch.zeros(32), "err_beta": 0.5}
    return given | feedback | {"in_groups": 4, "out_groups": 2} | _IN_8_BITS | {"devices_per_node": 2}


def _unsigned(bits: int) -> dict[str, Any]:
    buffers = {"scale_buffer": torch.ones(8).half(), "min_val_buffer": torch.zeros(8).half()}
    return {"data_in": _integers(8 * bits), **buffers, "num_group": 8, "group_size": 8}


CALLS = (
    # The type of a bias is that of its scores, or what torch adds to them.
    Call(_EVOFORMER, "attention", _attention, taken=_takes(bias1=(TYPE,), bias2=(TYPE,), lse=(TYPE,))),
    Call(
        _EVOFORMER, "attention_bwd", _attention_bwd,
        taken=_takes(**dict.fromkeys(("bias1", "bias2", "lse", "delta"), (TYPE,))),
    ),
    Call(
        _LTD, "token_sort_", lambda: {"unsorted_token_ids": _ids(2, 3, 4), "original_tokens": 4},
        taken=_takes(unsorted_token_ids=(SHORTER, FEWER)),
    ),
    Call(
        _LTD, "token_gather",
        lambda: {"activations": _half(3, 9, 8), "sorted_indices": _ids(3, 4), "batch_first": True},
        taken=_takes(activations=(TYPE, SHORTER), sorted_indices=(SHORTER,)),
    ),
    Call(
        _LTD, "token_scatter_",
        lambda: {
            "all_activations": _half(3, 9, 8), "layer_activations": _half(3, 4, 8), "sorted_indices": _ids(3, 4),
            "batch_first": True,
        },
    ),
    Call(
        _LTD, "mask_gather_bert", lambda: {"dense_mask": _half(3, 1, 9, 9), "sorted_indices": _ids(2, 3, 4)},
        taken=_takes(dense_mask=(TYPE,), sorted_indices=(SHORTER, FEWER)),
    ),
    Call(
        _LTD, "mask_gather_gpt", lambda: {"dense_mask": _half(3, 1, 9, 9), "truncated_seq_len": 4},
        numbers={"truncated_seq_len": {"negative": -1, "10 of 9": 10}},
        taken=_takes(dense_mask=(TYPE, SHORTER, FEWER)),
    ),
    *(
        Call(
            _SPATIAL, function, partial(_images, names),
            taken=_takes(activation=(SHORTER, FEWER) if len(names) == 2 else ()),
        )
        for function, names in (
            ("nhwc_bias_add", ("activation", "bias")),
            ("nhwc_bias_add_add", ("activation", "bias", "other")),
            ("nhwc_bias_add_bias_add", ("activation", "bias", "other", "other_bias")),
        )
    ),
    Call(
        _FORMATS, "quantize",
        lambda: {
            "out": _codes(4, 68), "val": _half(2, 128), "group_size": 64, "stochastic_rounding": 0, "q_bits": 8,
            "q_mantisa_bits": 3,
        },
        numbers={
            "group_size": {"0": 0, "negative": -64, "48 of 256": 48}, "q_bits": {"9": 9, "16": 16},
            "q_mantisa_bits": {"7": 7},
        },
        together={
            "groups of no whole bytes": {
                "out": _codes(4, 7), "val": _half(4, 2), "group_size": 1, "q_bits": 12, "q_mantisa_bits": 4,
            },
        },
        taken=_takes(val=(FLOAT, MORE)), sizes=True, named=frozenset({"out"}),
    ),
    Call(
        _FORMATS, "dequantize", lambda: {"val": _half(2, 128), "val_q": _codes(4, 68), **_E4M3}, numbers=_NO_E4M3,
        # The last group need not be full.
        taken=_takes(val=(FLOAT, MORE, SHORTER), val_q=(MORE,)), sizes=True, named=frozenset({"val_q"}),
    ),
    Call(
        _FORMATS, "selective_dequantize",
        lambda: {"val": _half(2, 128), "val_q": _codes(4, 68), "indexes": _ids(2), **_E4M3}, numbers=_NO_E4M3,
        together={
            "no index": {"indexes": _ids(2)[:0]},
            "three indices for four groups": {"indexes": _ids(3)},
            "codes of no whole part": {"val_q": _codes(3, 68)},
            "codes of int8": {"val_q": _codes(4, 68).view(torch.int8)},
        },
        # One index, and parts of one group, are right, too.
        taken=_takes(val=(FLOAT, MORE, FEWER), val_q=(MORE,), indexes=(SHORTER, FEWER)),
        sizes=True, named=frozenset({"val_q", "indexes"}),
    ),
    Call(
        _PACKBITS, "packbits", lambda: {"tensor": _half(19), "input_size": 19, "rank": 0},
        numbers={"input_size": {"negative": -1, "20 of 19": 20}}, taken=_takes(tensor=(FLOAT, MORE)), sizes=True,
    ),
    Call(
        _PACKBITS, "unpackbits", lambda: {"tensor": _codes(1, 3).view(3), "input_size": 3, "rank": 0},
        numbers={"input_size": {"negative": -1, "4 of 3": 4}}, taken=_takes(tensor=(MORE,)), sizes=True,
    ),
    Call(
        _QUANTIZER, "quantize", lambda: {"input_vals": _half(4, 16), "groups": 4, **_IN_8_BITS},
        numbers=_GROUPS | _BITS,
        together={
            "an odd row in 4 bits": {"input_vals": _half(2, 15), "groups": 1, "num_bits": 4},
            "a row in 7 groups": {"input_vals": _half(64), "groups": 7},
        },
        taken=_takes(input_vals=(TYPE, SHORTER, *_ANY_SHAPE)), sizes=True,
    ),
    *(
        Call(
            _QUANTIZER, function,
            lambda: {"quantized_data": _integers(4, 16), "params": torch.ones(4, 1), "groups": 4, **_IN_8_BITS},
            numbers={**_GROUPS, **_BITS, "quant_type": {"the other": _ASYMMETRIC}},
            together={"as many parameters again": {"params": torch.ones(8, 1)}},
            taken=_takes(quantized_data=(TYPE, SHORTER, *_ANY_SHAPE), params=_SCALES),
            sizes=True, said="dequantize(_fp32)?",
        )
        for function in ("dequantize", "dequantize_fp32")
    ),
    Call(
        _QUANTIZER, "quantized_reduction",
        lambda: {
            "input_vals": _integers(4, 16), "input_scales": torch.ones(4, 1), "in_groups": 4, "out_groups": 2,
            **_IN_8_BITS, "devices_per_node": 2,
        },
        numbers={**{name: {"3": 3, "0": 0} for name in ("in_groups", "out_groups", "devices_per_node")}, **_BITS},
        taken=_takes(input_vals=(TYPE, *_ANY_SHAPE), input_scales=_SCALES), sizes=True,
    ),
    Call(
        _QUANTIZER, "swizzle_quant",
        lambda: {
            "input_vals": _half(4, 16), "groups": 4, **_IN_8_BITS, "pipeline_size": 1, "nodes": 2,
            "devices_per_node": 2,
        },
        numbers={
            "groups": {"3": 3, "0": 0, "6": 6, "2": 2}, "nodes": {"3": 3, "0": 0}, "devices_per_node": {"0": 0},
            **_BITS,
        },
        together={
            "an odd number in 4 bits": {
                "input_vals": _half(1, 15), "groups": 1, "num_bits": 4, "nodes": 1, "devices_per_node": 1,
            },
        },
        taken=_takes(input_vals=(TYPE, SHORTER, NONE, *_ANY_SHAPE)), sizes=True,
    ),
    *(
        Call(
            _QUANTIZER, function, lambda: {"vals": _half(4, 16), "groups": 4, "bits": 8},
            numbers={"groups": {"3": 3, "0": 0}},
            # 48 numbers are 4 groups of 12, 60 are 4 of 15.
            taken=_takes(vals=(FLOAT, SHORTER, FEWER, MORE)), sizes=True,
        )
        for function in ("ds_quantize", "ds_quantize_asym", "ds_sr_quantize", "ds_sr_quantize_asym")
    ),
    Call(
        _QUANTIZER, "loco_swizzle_quant", _loco_swizzle,
        numbers={"groups": {"3": 3, "0": 0}, "nodes": {"3": 3, "0": 0}, **_BITS},
        taken=_takes(input_vals=_OF_ANY, error_feedback=_OF_ANY), sizes=True,
    ),
    Call(
        _QUANTIZER, "loco_quantized_reduction", _loco_reduction,
        numbers={"in_groups": {"3": 3, "0": 0}, "devices_per_node": {"3": 3, "0": 0}, **_BITS},
        # A row fewer is another number of elements: it is the errors that then do not fit.
        taken=_takes(input_vals=(*_OF_ANY, FEWER), input_scales=_OF_ANY, error_feedback=_OF_ANY), sizes=True,
    ),
    *(
        Call(
            _QUANTIZER, f"dequantize_int{bits}_to_half_experimental", partial(_unsigned, bits),
            numbers={"num_group": {"4": 4}, "group_size": {"7": 7, "0": 0}},
            taken=_takes(data_in=(MORE,), scale_buffer=_OF_ANY, min_val_buffer=_OF_ANY),
            named=frozenset({"data_in", "scale_buffer", "min_val_buffer"}),
            said=r"dequantize_int\S*_to_half_experimental",
        )
        for bits in (8, 4)
    ),
)  # fmt: skip


_PARAMETERS = [
    pytest.param(call, id=f"{call.builder}-{call.function}", marks=pytest.mark.needs(call.builder))
    for call in CALLS
]


@pytest.mark.parametrize("call", _PARAMETERS)
def test_arguments_that_do_not_fit_are_refused(op: Any, device: torch.device, call: Call) -> None:
    """Arguments, in turn or together, have another type, size, number or dimension: no result, no crash."""
    arguments, function = copies(call.arguments(), device), getattr(op, call.function)
    function(*copies(arguments).values())  # what is refused below is the change
    holds = Holds()
    for change, spoiled in _spoiled(call, arguments, device):
        problem = _trial(function, call, change, spoiled)
        holds[f"{call.function}({change}) is refused as it should be: {problem}"] = not problem
    do = "compare types and sizes first, and raise an error that begins with the function and names an argument"
    holds.expect(f"{call.builder} with arguments that do not fit", do)


def _spoiled(
    call: Call, arguments: Mapping[str, Any], device: torch.device
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what was changed, and the arguments."""
    for name, value in arguments.items():
        changes = _of_tensor(value) if isinstance(value, torch.Tensor) else call.numbers.get(name, {})
        for kind, changed in changes.items():
            if (name, kind) not in call.taken:
                yield f"{name}, {kind}", {**copies(arguments), name: changed}
    for what, together in call.together.items():
        yield what, {**copies(arguments), **copies(together, device)}
    yield from _together(call, arguments)


def _together(call: Call, arguments: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what is wrong although the tensors are alike: each is of integers, or has a dimension more."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    (first, one), *others = tensors.items()
    if others and one.is_floating_point() and (first, TYPE) not in call.taken:
        changed = {
            name: each.int() if each.is_floating_point() else each.clone() for name, each in tensors.items()
        }
        yield f"{first} and others, {TYPE}", {**arguments, **changed}
    alike = [name for name, each in tensors.items() if each.shape == one.shape]
    if len(alike) > 1 and (first, MORE) not in call.taken:
        changed = {
            name: each.clone()[None] if name in alike else each.clone() for name, each in tensors.items()
        }
        yield f"{first} and others, {MORE}", {**arguments, **changed}


def _of_tensor(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    other = torch.float32 if tensor.dtype in (torch.int32, torch.uint8) else torch.int32
    shorter = tensor.narrow(-1, 0, tensor.shape[-1] - 1).clone()
    changes = {FLOAT: tensor.to(torch.bfloat16)} if tensor.dtype == torch.float16 else {}
    return changes | {
        TYPE: tensor.to(other),
        SHORTER: shorter,
        FEWER: tensor[:-1].clone(),
        MORE: tensor.clone().unsqueeze(0),
        NONE: tensor.flatten()[0].clone(),
    }


def _trial(function: Callable[..., Any], call: Call, change: str, arguments: dict[str, Any]) -> str:
    """Return what is wrong; empty if the call is refused as it should be."""
    try:
        function(*arguments.values())
    except AccelError as error:
        said, found = error.what, error.found
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        said = found = str(error)
    else:
        return "it is taken"
    if not re.search(rf"\b{call.said or call.function}\b", said):
        return f"the error does not say which function: {said}"
    changed = change.partition(",")[0]
    names = arguments if changed in arguments else call.together.get(change, ())
    asked = [changed] if changed in call.named else list(names)
    says = any(re.search(rf"\b{name}\b", found) for name in asked)
    sized = call.sizes and changed not in call.named and re.search(r"\d|\bshape\b", found)
    return f"the error does not name an argument: {found}" if asked and not says and not sized else ""


Arguments = dict[str, Any]


_CORE, _INFERENCE = "InferenceCoreBuilder", "InferenceBuilder"
_numbers = partial(normal, seed=101)
_ROWS, _DATA, _STEPS = _numbers(6, 32), (_numbers(6, 32) * 40).to(torch.int8), _numbers(6, 2).abs()
_NORMED = dict.fromkeys(("normed", "out", "x", "y"), _ROWS) | {"gamma": _numbers(32)}
_TOKENS, _ONES = _numbers(2, 3, 32), torch.ones(32)
_SIX = {"groups": 6, "bits": 8, "kind": 1}
_DEVICES = {"pipeline": 1, "nodes": 1, "devices": 2}
_LINEAR = {"bias": _numbers(24), "add_bias": True, "flash": False, "heads": 4}
#: Calls of other functions, sizes and types than those whose refusals are tried, with arguments in their order.
_OTHERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (_QUANTIZER, "quantize", {"rows": _ROWS, **_SIX, "bits": 4}),
    (_QUANTIZER, "swizzle_quant", {"rows": _ROWS, **_SIX, "kind": 0, **_DEVICES, "devices": 3}),
    (_QUANTIZER, "loco_swizzle_quant", {"rows": _ROWS, "error_feedback": _ROWS, "beta": 0.5, **_SIX, **_DEVICES}),
    (_QUANTIZER, "dequantize", {"data": _DATA, "steps": _STEPS, **_SIX}),
    (
        _QUANTIZER, "quantized_reduction",
        {"data": _DATA, "steps": _STEPS, "groups": 6, "out": 3, "bits": 8, "kind": 1, "devices": 2},
    ),
    (_QUANTIZER, "ds_quantize_fp32", {"vals": _ROWS, "groups": 6, "bits": 4}),
    (_PACKBITS, "packbits", {"rows": _ROWS, "count": 192, "rank": 0}),
    (_PACKBITS, "unpackbits", {"data": _DATA.view(torch.uint8), "count": 192, "rank": 0}),
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
    what = f"other arguments of {call.function} give other results"
    holds[what] = changed or call.function == "token_sort_"


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether they are of one type and shape, and near; what is no number is so in both."""
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return False
    if not found.is_floating_point():
        return torch.equal(found.cpu(), wanted.cpu())
    ours, theirs = (tensor.detach().cpu().float() for tensor in (found, wanted))
    return torch.allclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True)


def strided(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same numbers in another order of memory, and with gaps between them."""
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
        for form, changed in strided(tensor).items():
            try:
                found = _results(call, function, {**copies(arguments), name: changed})
            except Exception:  # refused
                continue
            alike = found.keys() == wanted.keys() and all(_alike(found[key], wanted[key]) for key in wanted)
            holds[f"{name} of {call.function} {form}"] = alike
