# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op refusals: an argument that does not fit the others is an error, and the error says whose and which."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from accel_core.errors import AccelError
from accel_testkit.suite.expect import expect
from accel_testkit.suite.op_calls import CALLS, FEWER, FLOAT, MORE, NONE, SHORTER, TYPE, Call, copies

pytestmark = pytest.mark.tier("device")


_PARAMETERS = [
    pytest.param(call, id=f"{call.builder}-{call.function}", marks=pytest.mark.needs(call.builder))
    for call in CALLS
]


@pytest.mark.parametrize("call", _PARAMETERS)
def test_arguments_that_do_not_fit_are_refused(op: Any, device: torch.device, call: Call) -> None:
    """Arguments, in turn or together, have another type, size, number or dimension: no result, no crash."""
    arguments, function = copies(call.arguments(), device), getattr(op, call.function)
    function(*copies(arguments).values())  # what is refused below is the change
    wrong = [
        text for spoiled in _spoiled(call, arguments, device) if (text := _trial(function, call, spoiled))
    ]
    expect(
        not wrong,
        f"{call.builder} takes arguments that do not fit",
        found="; ".join(wrong),
        expected=f"an error that begins with {call.function}() and names an argument",
        do="compare types and sizes first: a kernel would read out of bounds",
    )


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


def _trial(function: Callable[..., Any], call: Call, spoiled: tuple[str, dict[str, Any]]) -> str:
    """Return what is wrong; empty if the call is refused as it should be."""
    change, arguments = spoiled
    try:
        function(*arguments.values())
    except AccelError as error:
        said, found = error.what, error.found
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        said = found = str(error)
    else:
        return f"{call.function}({change}) is taken"
    if not re.search(rf"\b{call.said or call.function}\b", said):
        return f"{call.function}({change}) does not say which function: {said}"
    changed = change.partition(",")[0]
    names = arguments if changed in arguments else call.together.get(change, ())
    asked = [changed] if changed in call.named else list(names)
    says = any(re.search(rf"\b{name}\b", found) for name in asked)
    if (
        asked
        and not says
        and not (call.sizes and changed not in call.named and re.search(r"\d|\bshape\b", found))
    ):
        return f"{call.function}({change}) does not name an argument: {found}"
    return ""
