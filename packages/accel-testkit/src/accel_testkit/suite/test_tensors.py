# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors: typed constructors, copies between host and device, and where a tensor is."""

from __future__ import annotations

import sys

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_type

pytestmark = pytest.mark.tier("device")

_CONSTRUCTORS = {
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}
#: Traits of the types that some devices have not.
_TRAITS = {"DoubleTensor": "fp64", "BFloat16Tensor": "bf16"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.needs(_TRAITS.get(n, n))) for n in _CONSTRUCTORS]
)
def test_constructor_takes_data(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`XTensor(data)` makes a tensor of that type, with that data, on the device."""
    tensor = getattr(accelerator, name)([1, 2, 3])
    found = (tensor.dtype, tensor.device.type, tensor.cpu().tolist())
    wanted = (_CONSTRUCTORS[name], accelerator.device().type, [1, 2, 3])
    expect(
        found == wanted,
        f"{name}([1, 2, 3]) makes another tensor",
        found=repr(found),
        expected=repr(wanted),
        do="construct with torch.tensor(data, dtype=..., device=...)",
    )


def test_typed_tensor_class_is_taken_as_its_name(accelerator: DeepSpeedAccelerator) -> None:
    """`x.type(torch.npu.FloatTensor)`, which programs ported by hand write, does what its name as a string does."""

    def outcome(wanted: object) -> tuple[str, ...]:
        try:
            tensor = torch.ones(2).type(wanted)  # type: ignore[call-overload]
        except (TypeError, ValueError) as error:
            return (type(error).__name__,)
        return tensor.type(), str(tensor.dtype), str(tensor.device)

    wrong = []
    for dtype in accelerator.supported_dtypes():
        name = torch.empty(0, dtype=dtype, device=accelerator.device()).type()
        holder, _, last = name.rpartition(".")
        its_class = getattr(sys.modules.get(holder), last, None)
        if its_class is not None and (found := outcome(its_class)) != outcome(name):
            wrong.append(f"{name}: {' '.join(found)}, its name: {' '.join(outcome(name))}")
    expect(
        not wrong,
        "a typed tensor class is not taken by Tensor.type()",
        found="; ".join(wrong),
        expected="what the name of the class gives as a string",
        do="name the class with its module in tp_name, as torch does",
    )


#: Numbers that a narrower type, or one without a sign, does not hold.
_VALUES = {
    "BFloat16Tensor": [[0.0, -1.5], [3.0e38, 2.0**-100]],
    "ByteTensor": [[0, 255], [128, 1]],
    "DoubleTensor": [[1 / 3, -1.0e300], [2.0**-1000, 1.0]],
    "FloatTensor": [[1 / 3, -3.0e38], [2.0**-120, 1.0]],
    "HalfTensor": [[1 / 3, -65504.0], [2.0**-14, 1.0]],
    "IntTensor": [[2**31 - 1, -(2**31)], [16777217, 0]],
    "LongTensor": [[2**63 - 1, -(2**63)], [9007199254740993, 0]],
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.needs(_TRAITS.get(n, n))) for n in _CONSTRUCTORS]
)
def test_constructor_keeps_shape_and_precision(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`XTensor(data)` keeps rows, no data at all, and every number that the type can hold."""
    make, dtype = getattr(accelerator, name), _CONSTRUCTORS[name]
    wrong = []
    for data in (_VALUES[name], [], [[1], [0]]):
        made, wanted = make(data), torch.tensor(data, dtype=dtype)
        found, place = made.cpu(), made.device.type
        if found.shape != wanted.shape or found.dtype != dtype or not torch.equal(found, wanted):
            wrong.append(f"{tuple(found.shape)} {found.tolist()} of {data}")
        elif place != make([1]).device.type:
            wrong.append(f"on {place} for {data}")
    expect(
        not wrong,
        f"{name}() changes its data",
        found="; ".join(wrong),
        expected=f"the shape of the data, and its numbers in {dtype}",
        do="construct with torch.tensor(data, dtype=..., device=...)",
    )


def test_device_tensor_is_on_the_accelerator(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` is True for tensors and parameters on the device, whatever their type and history."""
    tensor = torch.ones(2, device=accelerator.device())
    parameter = torch.nn.Parameter(tensor)
    others = [tensor.to(dtype) for dtype in (torch.int64, torch.uint8, torch.bool)]
    for thing in (tensor, parameter, tensor[:1], parameter * 2, tensor[:0], *others):
        found = accelerator.on_accelerator(thing)
        expect_type(found, bool, "on_accelerator()", do="return a bool")
        expect(
            found,
            "on_accelerator() denies a tensor on the device",
            found=f"False for a tensor on {thing.device}",
            expected="True for every tensor of this device type",
            do="compare tensor.device.type with the accelerator's",
        )


def test_host_tensor_is_not_on_the_accelerator(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` is False for host tensors, unless the accelerator is the host."""
    found = accelerator.on_accelerator(torch.ones(2))
    expect(
        found == (accelerator.device().type == "cpu"),
        "on_accelerator() is wrong about a host tensor",
        found=repr(found),
        expected="False where the device has memory of its own",
        do="compare tensor.device.type with the accelerator's",
    )


def test_tensor_elsewhere_is_not_on_the_accelerator(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` is False for tensors of other device types, such as meta."""
    expect(
        accelerator.on_accelerator(torch.ones(2, device="meta")) is False,
        "on_accelerator() claims a tensor of another device",
        found="True for a tensor on meta",
        expected="False: it has no data here",
        do="compare tensor.device.type with the accelerator's",
    )


@pytest.mark.tier("multi")
@pytest.mark.needs("indexed_devices")
def test_tensor_of_any_index_is_on_the_accelerator(accelerator: DeepSpeedAccelerator, second: int) -> None:
    """`on_accelerator` is True for tensors of each device of the type, whichever is current; the host's stay False."""
    tensors = {index: torch.ones(2, device=accelerator.device(index)) for index in (0, second)}
    host, wrong = torch.ones(2), []
    elsewhere = accelerator.on_accelerator(host)
    for current in (second, 0):
        accelerator.set_device(current)
        for index, tensor in tensors.items():
            answers = [accelerator.on_accelerator(each) for each in (tensor, tensor + 1, tensor[:1])]
            wrong += [f"device {current} is current, a tensor on {index}: {answers}"] * (
                answers != [True] * 3
            )
        wrong += [f"device {current} is current, a host tensor"] * (
            accelerator.on_accelerator(host) != elsewhere
        )
    expect(
        not wrong,
        "on_accelerator() depends on the current device",
        found="; ".join(wrong),
        expected="True for every tensor of this device type",
        do="compare tensor.device.type with the accelerator's",
    )


def test_answer_follows_the_data_of_a_tensor(accelerator: DeepSpeedAccelerator) -> None:
    """`on_accelerator` follows `tensor.data = other`, by which DeepSpeed moves parameters between host and device."""
    host, there = torch.ones(2), torch.ones(2, device=accelerator.device())
    wrong = []
    for tensor in (torch.zeros(2), torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, device=there.device)):
        for data in (there, host, there, torch.empty(0), there):
            try:
                tensor.data = data
            except RuntimeError:  # torch refuses some pairs of types
                continue
            found, wanted = accelerator.on_accelerator(tensor), accelerator.on_accelerator(data.clone())
            wrong += [f"{found} with data on {data.device}"] * (found is not wanted)
    expect(
        not wrong,
        "on_accelerator() answers for the data that a tensor had before",
        found="; ".join(wrong),
        expected="the answer for a new tensor on the same device",
        do="ask for tensor.device at each call, and keep nothing by tensor",
    )


def test_copies_keep_the_values(accelerator: DeepSpeedAccelerator) -> None:
    """Values survive the way to `device()` and back in every supported type."""
    values = torch.tensor([0.0, -1.5, 2.0, 96.0])
    lost = {}
    for dtype in accelerator.supported_dtypes():
        back = values.to(dtype).to(accelerator.device()).cpu()
        if not torch.equal(back, values.to(dtype)):
            lost[dtype] = back.tolist()
    expect(
        not lost,
        "copies change values",
        found=repr(lost),
        expected=repr(values.tolist()),
        do="look at the runtime's copy in that type",
    )


@pytest.mark.parametrize(
    "name",
    [
        "BFloat16Tensor",
        "FloatTensor",
        "HalfTensor",
        pytest.param("DoubleTensor", marks=pytest.mark.needs("fp64")),
    ],
)
def test_constructed_tensor_can_be_written(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """A tensor of `XTensor(data)` has memory of its own, requires no gradient, and is written in place."""
    tensors = [getattr(accelerator, name)([[1.0, 2.0], [3.0, 4.0]]) for _ in range(2)]
    needed = tensors[0].requires_grad
    if not needed:
        tensors[0].add_(1)
    expect(
        not needed and tensors[0].is_contiguous() and tensors[1].tolist() == [[1.0, 2.0], [3.0, 4.0]],
        f"a tensor of {name}() is not the caller's own",
        found=f"requires_grad {needed}, contiguous {tensors[0].is_contiguous()}, another one of the same data "
        f"{tensors[1].tolist()} after it was written",
        expected="a contiguous tensor without a gradient, as torch's constructor makes it",
        do="make the tensor by torch.tensor(data, dtype=..., device=device()), and nothing else",
    )
