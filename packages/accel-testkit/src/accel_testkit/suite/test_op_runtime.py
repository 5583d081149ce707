# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops over the runtime's own operators: what a builder says of them is so; without these, and with wrong ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import Implementation
from accel_core.op_builder.names import UPSTREAM
from accel_ops import routes
from accel_testkit.suite import needs, results
from accel_testkit.suite.expect import Holds, outcome
from accel_testkit.suite.ops import of_builder
from accel_testkit.suite.ops.calls import problem, strided
from accel_testkit.suite.ops.optimizers import FUSED
from accel_testkit.suite.ops.spec import Numbers

pytestmark = pytest.mark.tier("device")

#: Operators of torch that each device implements or not.
_OPTIONAL = "_fused_adam"
#: Namespaces of torch's own operators.
_TORCH = {"aten", "prim", "prims", "profiler", "inductor", "c10d", "_c10d_functional", "quantized"}

Change = Callable[[torch.Tensor], torch.Tensor]


class Called(TorchDispatchMode):
    """Collects the names of the runtime's operators that are called inside, as `npu.npu_rms_norm`.

    change: makes of each tensor that such an operator returns another one; written: and of those that it writes;
    only: of these operators (default: of all).
    """

    def __init__(
        self, change: Change | None = None, written: bool = True, only: set[str] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()
        self._change, self._written, self._only = change, written, only

    @override
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if func.namespace in _TORCH and not name.startswith(_OPTIONAL):
            return found
        name = f"{func.namespace}.{name}"
        self.names.add(name)
        if self._change is None or not (self._only is None or name in self._only):
            return found
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if self._written and argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in [value] if isinstance(value, torch.Tensor) else value:
                    tensor.copy_(self._change(tensor))
        if not func._schema.returns:
            return found
        if isinstance(found, torch.Tensor):
            return self._change(found)
        return type(found)(self._change(each) if isinstance(each, torch.Tensor) else each for each in found)


class _NoOps:
    """A namespace of `torch.ops` without some of its operators."""

    def __init__(self, namespace: Any, missing: set[str]) -> None:
        self._namespace, self._missing = namespace, missing

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"the conformance suite hides {name}")
        return getattr(self._namespace, name)


@contextmanager
def reloaded_ops() -> Iterator[None]:
    """Inside, torch's operators are tried as in a new process; what is found out there is forgotten."""
    routes.self_check.cache_clear()
    try:
        yield
    finally:
        routes.self_check.cache_clear()


@contextmanager
def hidden(names: set[str]) -> Iterator[None]:
    """Inside, `torch.ops` has none of these operators, as a release of the runtime from before them."""
    missing: dict[str, set[str]] = {}
    for name in names:
        namespace, _, op = name.partition(".")
        missing.setdefault(namespace, set()).add(op)
    with ExitStack() as stack:
        for name, ops in missing.items():
            stack.enter_context(mock.patch.object(torch.ops, name, _NoOps(getattr(torch.ops, name), ops)))
        yield


#: Ops that a runtime may have operators for.
_NAMES = (
    "FusedAdamBuilder", "InferenceBuilder", "InferenceCoreBuilder", "QuantizerBuilder", "FPQuantizerBuilder",
)  # fmt: skip


def _half(accelerator: DeepSpeedAccelerator) -> torch.dtype:
    return torch.float16 if torch.float16 in accelerator.supported_dtypes() else torch.bfloat16


#: An op that a reason names as the one that computes; `no torch.ops.x.y` is one that there is not.
_OP = re.compile(r"(?<!\bno )torch\.ops\.(\w+\.\w+)")
_ABSENT = re.compile(r"\bno torch\.ops\.(\w+\.\w+)")
_UNFINISHED = re.compile(r"torch\.ops\.(?!\w)|: *$|: *;|\(\)|^\W|\bin +$")
_OPS = needs.ops(_NAMES)


@pytest.mark.parametrize("name", _OPS)
def test_op_serves_without_the_runtime_s(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Without the operators that it calls, an op says so, and computes the same or is incompatible."""
    builder, device = accelerator.create_op_builder(name), torch.device(accelerator.device())
    types = torch.float32, _half(accelerator)
    with reloaded_ops(), Called() as called:
        problem(name, builder.load(), device, *types)
    if not called.names:
        pytest.skip("the op calls no operator of the runtime")
    builder = accelerator.create_op_builder(name)
    with hidden(called.names), reloaded_ops(), Called() as still:
        compatible, before = builder.is_compatible(), getattr(builder, "reason", "plain torch")
        found = outcome(lambda: problem(name, builder.load(), device, *types))
        reasons = before, getattr(builder, "reason", "plain torch")
    holds = Holds()
    if compatible:
        holds[f"the right numbers: {found}"] = not found
        holds["none of them is called"] = not still.names & called.names
        named = {op for reason in reasons for op in _OP.findall(reason)}
        holds[f"{reasons} name none of them as what computes"] = not named & called.names
    else:
        holds["an incompatible builder does not load"] = found
    what = f"{name} where the runtime has no {', '.join(called.names)}"
    holds.expect(what, "ask hasattr(torch.ops.<namespace>, name), in compatibility() and in load()")


@pytest.mark.parametrize("name", needs.ops(dict.fromkeys((*_NAMES, *FUSED))))
def test_operator_that_works_is_used(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """Operators that `load` tries and that its reason names are used, or the reason says why not."""
    builder = accelerator.create_op_builder(name)
    first, half, holds = str(getattr(builder, "reason", "")), _half(accelerator), Holds()
    stated = Implementation.VENDOR_OP in getattr(builder, "implementations", tuple)()
    with reloaded_ops(), Called() as tried:
        op = builder.load()
    _exercise(accelerator, name, op, half)  # what is tried when it is first needed
    with Called() as used:
        _exercise(accelerator, name, op, half)
    reason = str(getattr(builder, "reason", ""))
    # The operators of a simulated device work, also those named before; a real one's may be wrong.
    named = set(_OP.findall(f"{first} {reason}" if results.simulated() else reason)) if stated else set()
    holds.equal(f"ops that {reason!r} names and no function calls", sorted(named - used.names), [])
    idle = sorted(tried.names - used.names)
    what = f"the functions call {', '.join(idle)}, which load() tried; {reason!r}"
    holds[what] = not idle or (not results.simulated() and idle[0] in reason)
    do = "try the operator in load() if you promise it; compare the trial with what it computes"
    holds.expect(name, do)


def _flipped(tensor: torch.Tensor) -> torch.Tensor:
    """Each integer or code another one; each number a thirtieth larger."""
    return tensor * (1 + 1 / 30) if tensor.dtype.itemsize > 1 else _as(tensor, lambda codes: codes ^ 1)


def _without_small(tensor: torch.Tensor) -> torch.Tensor:
    """Small numbers are zero."""
    if tensor.dtype.itemsize == 1:
        return _as(tensor, lambda codes: codes * (codes.abs() % 128 > 5))
    return tensor * (tensor.abs() > _largest(tensor) / 500)


def _without_nan(tensor: torch.Tensor) -> torch.Tensor:
    """True for an operator that takes NaN for a number."""
    return tensor.nan_to_num(1.0, 2.0, -2.0) if tensor.dtype.itemsize > 1 else tensor


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    """Large numbers are smaller."""
    if tensor.dtype.itemsize == 1:
        return _as(tensor, lambda codes: codes - (codes.abs() % 128 > 110).to(codes.dtype))
    return torch.where(tensor.abs() > _largest(tensor) / 2, tensor * 0.9, tensor)


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().nan_to_num(0).max()) if tensor.numel() else 0.0


def _fails(tensor: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("the conformance suite makes this operator fail")


def _as(tensor: torch.Tensor, change: Change) -> torch.Tensor:
    """Change tensors of one byte as integers."""
    whole = tensor if tensor.dtype == torch.int8 else tensor.view(torch.uint8)
    return change(whole.to(torch.int16)).to(whole.dtype).view(tensor.dtype)


_SPOILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all": _flipped, "small": _without_small, "large": _narrow, "nan": _without_nan, "fails": _fails,
}  # fmt: skip


@pytest.mark.parametrize("how", _SPOILED)
@pytest.mark.parametrize("name", _OPS)
def test_operator_that_is_wrong_is_not_used(accelerator: DeepSpeedAccelerator, name: str, how: str) -> None:
    """If an operator that `load` tries is wrong or fails, the op computes without it, and the reason names it."""
    builder, device = accelerator.create_op_builder(name), torch.device(accelerator.device())
    types = torch.float32, _half(accelerator)
    with reloaded_ops(), Called() as called:
        builder.load()
    if not called.names:
        pytest.skip("load() tries no operator of the runtime")
    builder = accelerator.create_op_builder(name)
    # An optimizer's step is tried on a single number, which is the largest one.
    with reloaded_ops(), Called(_SPOILED[how], how != "small", called.names):
        found = outcome(lambda: problem(name, builder.load(), device, *types))
    reason = str(getattr(builder, "reason", ""))
    holds = Holds({f"the right numbers without it: {found}": not found})
    named = any(op.partition(".")[2] in reason for op in called.names)
    holds[f"the reason names the operator: {reason!r}"] = named
    do = "let load() try the operator on numbers of all sizes and on NaN"
    holds.expect(f"{name} with an operator that is wrong", do)


@pytest.mark.parametrize("name", needs.ops(UPSTREAM))
def test_reasons_are_whole(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`reason` is a line with no part left out, before and after `load`; ops of the runtime that it names exist."""
    builder, holds = accelerator.create_op_builder(name), Holds()
    for when in ("before", "after"):
        if when == "after":
            if not builder.is_compatible():
                break
            builder.load()
        reason = str(getattr(builder, "reason", "-"))
        case, named = f"{reason!r} {when} load()", _OP.findall(reason)
        holds[f"{case} is a whole line"] = reason.strip() and not _UNFINISHED.search(reason)
        holds[f"{case}: the ops that it names are there"] = all(map(_exists, named))
        # A simulated runtime has every op that its vendor documents.
        absent = [op for op in _ABSENT.findall(reason) if _exists(op) or results.simulated()]
        holds[f"{case}: there is no {', '.join(absent)}, and another runtime has it"] = not absent
        stated: tuple[Implementation, ...] = getattr(builder, "implementations", tuple)()
        if hasattr(builder, "implementations"):
            plain = "plain torch" not in reason or Implementation.PLAIN in stated
            holds[f"{case}: implementations {stated}, with plain torch if it names it"] = stated and plain
        if named or results.simulated():
            what = f"{case}: implementations {stated}, with an op of the runtime if and only if it names one"
            holds[what] = bool(named) == (Implementation.VENDOR_OP in stated)
    holds.expect(f"the reason of {name}", "write it in compatibility() from what load() does")


def _exists(op: str) -> bool:
    namespace, _, name = op.partition(".")
    return hasattr(getattr(torch.ops, namespace), name)


def _exercise(accelerator: DeepSpeedAccelerator, name: str, op: Any, dtype: torch.dtype) -> None:
    device = torch.device(accelerator.device())
    for spec in of_builder(name):
        for sample in itertools.islice(spec.samples(Numbers(dtype)), 12 if dtype in spec.types else 0):
            spec.call(op, dtype, sample.placed(device, dtype))
    for spec in of_builder(name) if name in FUSED else ():
        whole = spec.first(torch.float32).placed(device, torch.float32)
        # An op of the runtime may take contiguous tensors, or only what another one refuses.
        for changed in (whole, strided(whole)["with gaps"]):
            spec.call(op, torch.float32, changed)
