# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors: the types that the device computes in, typed constructors, copies, and where a tensor is."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds, outcome

pytestmark = pytest.mark.tier("device")

#: Constructor -> its type, and numbers that a narrower type, or one without a sign, does not hold.
CONSTRUCTORS: dict[str, tuple[torch.dtype, Any]] = {
    "BFloat16Tensor": (torch.bfloat16, [[0.0, -1.5], [3.0e38, 2.0**-100]]),
    "ByteTensor": (torch.uint8, [[0, 255], [128, 1]]),
    "DoubleTensor": (torch.float64, [[1 / 3, -1.0e300], [2.0**-1000, 1.0]]),
    "FloatTensor": (torch.float32, [[1 / 3, -3.0e38], [2.0**-120, 1.0]]),
    "HalfTensor": (torch.float16, [[1 / 3, -65504.0], [2.0**-14, 1.0]]),
    "IntTensor": (torch.int32, [[2**31 - 1, -(2**31)], [16777217, 0]]),
    "LongTensor": (torch.int64, [[2**63 - 1, -(2**63)], [9007199254740993, 0]]),
}
_CONSTRUCT = "construct with torch.tensor(data, dtype=..., device=device()), and nothing else"
_WHERE = "compare tensor.device.type with the accelerator's, at each call"


def test_list_begins_with_float32(accelerator: DeepSpeedAccelerator) -> None:
    """`supported_dtypes()` is a list of floating torch.dtypes, each once, float32 first.

    A half type is in it exactly when its question is answered with True.
    """
    dtypes = accelerator.supported_dtypes()
    holds = Holds({f"{dtypes!r} is a list": isinstance(dtypes, list)})
    dtypes = dtypes if isinstance(dtypes, list) else []
    holds["float32 is first"] = dtypes[:1] == [torch.float32]
    holds["floating types"] = all(isinstance(item, torch.dtype) and item.is_floating_point for item in dtypes)
    holds["each type once"] = len(set(dtypes)) == len(dtypes)
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        answer = getattr(accelerator, f"is_{name}_supported")()
        holds.equal(f"is_{name}_supported(), as listed", answer, dtype in dtypes)
    holds.expect(
        "supported_dtypes()",
        "list the floating types that DeepSpeed may train in, as the answers say",
    )


def test_listed_types_are_trained_in(accelerator: DeepSpeedAccelerator) -> None:
    """In every listed type a layer has a forward and a backward pass, and weights are stepped: what training is."""

    def trained(dtype: torch.dtype) -> list[list[float]]:
        weight = torch.full((4, 4), 0.5, device=accelerator.device(), dtype=dtype, requires_grad=True)
        rows = torch.ones(2, 4, device=accelerator.device(), dtype=dtype)
        torch.nn.functional.linear(rows, weight).sum().backward()
        torch.optim.SGD([weight], lr=0.125).step()
        return weight.detach().cpu().double().tolist()

    holds = Holds()
    for dtype in accelerator.supported_dtypes():
        weights = outcome(lambda dtype=dtype: trained(dtype))  # type: ignore[misc]
        # From 0.5 by a step of 0.125 times a gradient of 2.
        holds.equal(f"weights of {dtype} after a step", weights, [[0.25] * 4] * 4)
    holds.expect("training in a listed type", "leave out types of storage alone, such as those of 8 bits")


@pytest.mark.needs("fp64")
def test_double_precision_computes(accelerator: DeepSpeedAccelerator) -> None:
    """Where `is_fp64_supported()` is not declared missing, float64 keeps its precision on the device."""
    found = (torch.ones(1, dtype=torch.float64).to(accelerator.device()) / 3).cpu().item()
    holds = Holds({"is_fp64_supported()": accelerator.is_fp64_supported()})
    holds[f"1 / 3 is {found!r}"] = abs(found - 1 / 3) < 1e-15
    holds.expect("float64", "declare the trait fp64 where the device has no double precision")


def test_triton_is_answered_without_it(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`is_triton_supported()` imports no Triton, and without support `prefer_triton_grouped_mm()` is False."""
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    holds, supported = Holds(), accelerator.is_triton_supported()
    holds["is_triton_supported() imports Triton"] = "triton" not in sys.modules
    holds["Triton is preferred and not supported"] = supported or not accelerator.prefer_triton_grouped_mm()
    do = "answer from what the device is: DeepSpeed asks while it is imported"
    holds.expect("an answer about Triton", do)


@pytest.mark.parametrize("name", needs.methods(CONSTRUCTORS))
def test_constructor_takes_data(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`XTensor(data)` keeps rows, no data at all, and every number that the type holds, on the device.

    It has memory of its own, requires no gradient, and is written in place.
    """
    make, (dtype, values) = getattr(accelerator, name), CONSTRUCTORS[name]
    holds = Holds()
    for data in ([1, 2, 3], values, [], [[1], [0]]):
        tensor, again = make(data), make(data)
        form = tensor.device.type, tensor.requires_grad, tensor.is_contiguous()
        holds.equal(f"the place of {name}({data})", form, (accelerator.device().type, False, True))
        again.zero_()
        holds.same(f"{name}({data}) is {tensor.cpu()!r}", tensor, torch.tensor(data, dtype=dtype))
    holds.expect(f"{name}(data)", _CONSTRUCT)


def test_typed_tensor_class_is_taken_as_its_name(accelerator: DeepSpeedAccelerator) -> None:
    """`x.type(torch.npu.FloatTensor)`, which programs ported by hand write, does what its name as a string does."""

    def typed(wanted: Any) -> tuple[str, ...]:
        try:
            tensor: Any = torch.ones(2).type(wanted)
        except (TypeError, ValueError) as error:
            return (type(error).__name__,)
        return tensor.type(), str(tensor.dtype), str(tensor.device)

    holds = Holds()
    for dtype in accelerator.supported_dtypes():
        name = torch.empty(0, dtype=dtype, device=accelerator.device()).type()
        module, _, last = name.rpartition(".")
        its_class = getattr(sys.modules.get(module), last, None)
        if its_class is not None:
            holds.equal(f"Tensor.type() of the class {name}", typed(its_class), typed(name))
    holds.expect("a typed tensor class", "name the class with its module in tp_name, as torch does")


def test_device_tensor_is_on_the_accelerator(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` is True for tensors and parameters on the device, whatever their type and history.

    It is False for tensors on meta, and for host tensors, unless the accelerator is the host.
    """
    tensor = torch.ones(2, device=accelerator.device())
    parameter = torch.nn.Parameter(tensor)
    others = [tensor.to(dtype) for dtype in (torch.int64, torch.uint8, torch.bool)]
    holds = Holds()
    for thing in (tensor, parameter, tensor[:1], parameter * 2, tensor[:0], *others):
        holds.equal(f"on_accelerator() of {thing.data!r}", accelerator.on_accelerator(thing), True)
    for place, wanted in (("cpu", accelerator.device().type == "cpu"), ("meta", False)):
        elsewhere = accelerator.on_accelerator(torch.ones(2, device=place))
        holds.equal(f"on_accelerator() of a tensor on {place}", elsewhere, wanted)
    holds.expect("on_accelerator()", _WHERE)


def test_answer_follows_the_data_of_a_tensor(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` follows `tensor.data = other`, by which DeepSpeed moves parameters between host and device."""
    host, there = torch.ones(2), torch.ones(2, device=accelerator.device())
    holds = Holds()
    for tensor in (torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, device=there.device)):
        for data in (there, host, there, torch.empty(0), there):
            try:
                tensor.data = data
            except RuntimeError:  # torch refuses some pairs of types
                continue
            wanted = accelerator.on_accelerator(data.clone())
            holds.equal(f"with data on {data.device}", accelerator.on_accelerator(tensor), wanted)
    holds.expect("on_accelerator() of a tensor whose data changed", _WHERE)


def test_copies_keep_the_values(accelerator: DeepSpeedAccelerator) -> None:
    """Values survive the way to `device()` and back in every supported type."""
    values, holds = torch.tensor([0.0, -1.5, 2.0, 96.0]), Holds()
    for dtype in accelerator.supported_dtypes():
        back = values.to(dtype).to(accelerator.device()).cpu()
        holds.same(f"{dtype}: {back.tolist()}", back, values.to(dtype))
    holds.expect("a copy to the device and back", "look at the runtime's copy in that type")
