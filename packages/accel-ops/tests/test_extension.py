# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""adam_update as a builtin function does and refuses what the Python function does, bit for bit."""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops.host import library
from accel_ops.optimizers import host as python
from accel_ops.optimizers.host import CPUAdamBuilder
from shared.children import run

SCALARS = (3, 1e-2, 0.9, 0.99, 1e-8, 0.01, True)
#: False before torch 2.10, and without a GIL.
CAN_EXCHANGE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and not sysconfig.get_config_var(
    "Py_GIL_DISABLED"
)


@pytest.fixture(scope="module")
def builtin() -> Any:
    op = CPUAdamBuilder().load()
    op.create_adam(11, adamw_mode=True)
    op.create_adam(12, adamw_mode=False)
    return op.adam_update


def four(*shape: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(shape).to(dtype if index < 2 else torch.float32) for index in range(4)]


def outcome(function: Callable[..., int], arguments: list[Any]) -> Any:
    """The result or the error's type and text, and what the tensors hold then."""
    copies = copy.deepcopy(arguments)
    try:
        result: Any = function(*copies)
    except Exception as error:
        result = (type(error), str(error))
    tensors = [each for each in copies if isinstance(each, torch.Tensor) and each.device.type == "cpu"]
    return result, [each.detach().resolve_neg().to_dense().tolist() for each in tensors if each.numel()]


def assert_same_end(builtin: Any, arguments: list[Any]) -> None:
    """The op's function is builtin, and ends as Python's does; NaN is not equal to itself, but its text is."""
    assert isinstance(builtin, types.BuiltinFunctionType) == CAN_EXCHANGE
    assert repr(outcome(builtin, arguments)) == repr(outcome(python.adam_update, arguments))


class Subclass(torch.Tensor):
    def __deepcopy__(self, memo: Any) -> Subclass:
        return self.detach().clone().as_subclass(Subclass)


SHARED = torch.ones(6)
ODD: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "list": lambda: [1.0],
    "shorter": lambda: torch.rand(5),
    "float64": lambda: torch.rand(6).double(),
    "int": lambda: torch.ones(6, dtype=torch.int32),
    "complex": lambda: torch.ones(6, dtype=torch.complex64),
    "conjugate": lambda: torch.ones(6, dtype=torch.complex64).conj(),
    "negative view": lambda: torch._neg_view(torch.rand(6)),
    "sparse": lambda: torch.rand(6).to_sparse(),
    "strided": lambda: torch.rand(12)[::2],
    "expanded": lambda: torch.rand(1).expand(6),
    "transposed": lambda: torch.rand(3, 2).t(),
    "other shape": lambda: torch.rand(2, 3),
    "half": lambda: torch.rand(6).half(),
    "bfloat16": lambda: torch.rand(6).bfloat16(),
    "subclass": lambda: torch.rand(6).as_subclass(Subclass),
    "parameter": lambda: torch.nn.Parameter(torch.rand(6)),
    "buffer": lambda: torch.nn.Buffer(torch.rand(6)),
    "requires grad": lambda: torch.rand(6, requires_grad=True),
    "inference": lambda: torch.rand(6),
    "empty": lambda: torch.rand(0),
    "shared with the next": lambda: SHARED,
}


@pytest.mark.parametrize("role", range(4))
@pytest.mark.parametrize("odd", ODD)
def test_odd_tensors_have_the_same_end(builtin, odd, role):
    tensors: list[Any] = four(6)
    tensors[role] = ODD[odd]()
    if tensors[role] is SHARED:
        tensors[(role + 1) % 4] = SHARED
    arguments = [11, *SCALARS, *tensors]
    assert_same_end(builtin, arguments)


WRONG: list[Any] = [None, "x", 0, -1, 2, 2.0, True, False, 2**40, 2**63, 2**2000, float("nan"), float("inf"),
                    torch.tensor(2.0), torch.tensor([1.0, 2.0]), [], object]  # fmt: skip


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("value", WRONG, ids=lambda value: repr(value)[:20])
def test_odd_options_have_the_same_end(builtin, index, value):
    arguments: list[Any] = [11, *SCALARS, *four(6)]
    arguments[index] = value
    assert_same_end(builtin, arguments)


@pytest.mark.parametrize("count", [0, 3, 11, 13, 40])
def test_a_wrong_number_of_arguments_is_an_error(builtin, count):
    arguments = [11, *SCALARS, *four(6), *[1] * 40][:count]
    with pytest.raises(TypeError, match=r"adam_update\(\)"):
        builtin(*arguments)


def test_keywords_reach_the_python_function(builtin):
    copies = [torch.zeros(6, dtype=torch.bfloat16), torch.zeros(6, dtype=torch.bfloat16)]
    first, second = four(6), four(6)
    builtin(11, *SCALARS, *first, grad_factor=0.5, copy=copies[0])
    python.adam_update(11, *SCALARS, *second, grad_factor=0.5, copy=copies[1])
    assert all(map(torch.equal, [*first, copies[0]], [*second, copies[1]]))
    builtin(11, *SCALARS, *first[:2], exp_avg=first[2], exp_avg_sq=first[3])
    with pytest.raises(TypeError, match="unexpected keyword"):
        builtin(11, *SCALARS, *first, nothing=1)


def test_memory_that_is_copied_when_written_is_not_shared_after_a_step(builtin):
    original = torch.ones(6)
    lazy = torch._lazy_clone(original)
    builtin(11, *SCALARS, lazy, *four(6)[1:])
    assert torch.equal(original, torch.ones(6))
    assert not torch.equal(lazy, original)


def test_an_optimizer_that_does_not_exist_or_was_destroyed_is_named(builtin):
    op = CPUAdamBuilder().load()
    op.create_adam(13)
    assert op.destroy_adam(13) == op.destroy_adam(13) == 0
    for unknown in (13, 999, "x", None):
        with pytest.raises(InvalidOpArgument, match="never created"):
            builtin(unknown, *SCALARS, *four(6))
    with pytest.raises(TypeError):
        builtin([], *SCALARS, *four(6))


def test_threads_may_step_large_tensors_at_once(builtin, threads):
    torch.set_num_threads(2)
    rows = [four(100_000) for _ in range(4)]

    def steps(row, function=builtin):
        for _ in range(20):
            function(11, *SCALARS, *row)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(steps, rows[1:]))
    torch.set_num_threads(1)
    steps(rows[0], python.adam_update)
    assert all(all(map(torch.equal, row, rows[0])) for row in rows)


def test_calls_leave_no_references(builtin):
    tensors = four(6)
    bad = [*tensors[:3], torch.rand(5)]
    objects = [11, 10**6, 1e-2, *tensors, None]

    def call():
        builtin(11, 10**6, *SCALARS[1:], *tensors)
        with pytest.raises(InvalidOpArgument, match="cannot work on these tensors"):
            builtin(11, 10**6, *SCALARS[1:], *bad)

    call()
    gc.collect()
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(200):
        call()
    gc.collect()
    after = [sys.getrefcount(each) for each in objects]
    assert all(abs(one - other) < 50 for one, other in zip(before, after, strict=True)), (before, after)


def test_an_op_can_be_pickled_and_copied():
    op = CPUAdamBuilder().load()
    op.create_adam(15)
    for other in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op)):
        tensors = four(6)
        assert other.adam_update(15, *SCALARS, *tensors) == 0


@pytest.mark.parametrize(
    "missing", ["exchange", "another version", "free-threaded", "another interpreter", "headers"]
)
def test_without_what_it_needs_calls_go_through_ctypes(missing, monkeypatch, tmp_path):
    path = library.load().functions._name
    if missing == "exchange":
        monkeypatch.delattr(torch._C.TensorBase, "__dlpack_c_exchange_api__", raising=False)
        monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__", raising=False)
    elif missing == "another version":
        monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", _exchange_of_version(2), False)
    elif missing == "free-threaded":
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1)
    elif missing == "another interpreter":
        monkeypatch.setattr(sys.implementation, "name", "other")
    else:
        path = str(tmp_path / "without.so")
        run("c++", "-shared", "-x", "c++", os.devnull, "-o", path, check=True)
    module = library._module(path)
    assert module is library.WithoutModule
    assert module.adam_update({}, python.adam_update) is python.adam_update
    assert module.pack([torch.ones(1)]) is None


def _exchange_of_version(major: int) -> Any:
    table = ctypes.create_string_buffer(major.to_bytes(4, sys.byteorder), 64)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    name = ctypes.create_string_buffer(b"dlpack_exchange_api")
    _KEPT.extend((table, name))
    return make(ctypes.addressof(table), ctypes.cast(name, ctypes.c_char_p), None)


_KEPT: list[Any] = []  # what the capsules point to
