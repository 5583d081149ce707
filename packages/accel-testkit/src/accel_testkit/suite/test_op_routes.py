# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op implementations: what a builder says of where its op comes from is whole, and is where it comes from."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_core.op_builder import Implementation
from accel_core.op_builder.names import UPSTREAM
from accel_testkit.suite import needs, results
from accel_testkit.suite.expect import Holds, expect_equal
from accel_testkit.suite.inference_functions import Attention
from accel_testkit.suite.op_steps import STEPS
from accel_testkit.suite.test_op_attention import Engine
from accel_testkit.suite.test_op_inference import _GATES, CASES, Numbers

pytestmark = pytest.mark.tier("device")

#: An op that a reason names as the one that computes; `no torch.ops.x.y` is one that there is not.
_OP = re.compile(r"(?<!\bno )torch\.ops\.(\w+\.\w+)")
_ABSENT = re.compile(r"\bno torch\.ops\.(\w+\.\w+)")
_UNFINISHED = re.compile(r"torch\.ops\.(?!\w)|: *$|: *;|\(\)|^\W|\bin +$")


@pytest.mark.parametrize("name", needs.ops(UPSTREAM))
def test_reasons_are_whole(accelerator: DeepSpeedAccelerator, name: str) -> None:
    """`reason` is a line with no part left out, before and after `load`; ops of the runtime that it names exist."""
    builder, holds = accelerator.create_op_builder(name), Holds()
    for when in ("before", "after"):
        reason = str(getattr(builder, "reason", "-"))
        if when == "after" and not builder.is_compatible():
            continue
        if when == "after":
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


@pytest.mark.parametrize(
    "name", needs.ops([*STEPS, "InferenceBuilder", "InferenceCoreBuilder", "QuantizerBuilder"])
)
def test_named_ops_of_the_runtime_compute(
    accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The ops of the runtime that a builder names are called when its functions are."""
    builder = accelerator.create_op_builder(name)
    if Implementation.VENDOR_OP not in getattr(builder, "implementations", tuple)():
        return
    called: set[str] = set()
    for op in _OP.findall(str(builder.reason)):
        namespace, _, short = op.partition(".")
        place = getattr(torch.ops, namespace)
        monkeypatch.setattr(place, short, _Counted(getattr(place, short), op, called))
    loaded = builder.load()
    named = set(_OP.findall(str(builder.reason)))
    dtype = torch.float16 if torch.float16 in accelerator.supported_dtypes() else torch.bfloat16
    called.clear()
    _exercise(accelerator, name, loaded, dtype)
    do = "load the runtime's op where has_op() finds it"
    expect_equal(f"which ops of the runtime {name} names and does not call", sorted(named - called), [], do)


class _Counted:
    """An op of the runtime, or an overload of it, that keeps its name when it is called."""

    def __init__(self, real: Any, name: str, called: set[str]) -> None:
        self.real, self.name, self.called = real, name, called

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.called.add(self.name)
        return self.real(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        overload = isinstance(found, torch._ops.OpOverload)
        return _Counted(found, self.name, self.called) if overload else found


def _exercise(accelerator: DeepSpeedAccelerator, name: str, op: Any, dtype: torch.dtype) -> None:
    device = torch.device(accelerator.device())
    for builder, calls in CASES.values():
        if builder == name:
            calls(op, Numbers(device, dtype))
    if name == "InferenceBuilder":
        engine = Engine(accelerator, Attention(rotary=8), dtype)
        engine.op = op
        engine.error(0, 3, prompt=True)
    elif name == "InferenceCoreBuilder":
        # Rows of 64: a runtime's op may take multiples of 16 only.
        out, x = (torch.ones(4, width, device=device, dtype=dtype) for width in (32, 64))
        for kind in _GATES:
            op.gated_activation(out, x, None, kind)
    elif name == "QuantizerBuilder":
        rows = torch.ones(4, 64, device=device, dtype=dtype)
        for kind in (op.Symmetric, op.Asymmetric):
            op.quantize(rows, 4, 8, kind)
    elif name in STEPS:
        step = STEPS[name]
        for settings in step.variants.values():
            values = {**step.values, **settings}
            whole = [torch.full((65, 2), 0.25 + n, device=device) for n in range(2 + step.states)]
            # An op of the runtime may take contiguous tensors, or only what another one refuses.
            for tensors in (whole, [tensor[:, 0] for tensor in whole]):
                step.call(op, [[tensor] for tensor in tensors], values)
