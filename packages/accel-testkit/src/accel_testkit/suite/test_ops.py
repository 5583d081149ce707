# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops, by their specs: right on every sample, only written where said, wrong arguments rejected, any stride read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map_only

from accel_core.errors import AccelError
from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite import needs
from accel_testkit.suite.expect import Holds
from accel_testkit.suite.ops import SPECS, of_builder
from accel_testkit.suite.ops.calls import copies, equal, problems, strided, tensors_in
from accel_testkit.suite.ops.spec import (
    FEWER,
    FLOAT,
    MORE,
    NAMES,
    NONE,
    SHORTER,
    TYPE,
    Numbers,
    OpSpec,
    Values,
    error,
    is_framed,
)
from accel_testkit.suite.test_graphs import captured

pytestmark = pytest.mark.tier("device")

#: A check of each builder, not of each function: some load for long.
_BUILDERS = needs.ops(dict.fromkeys(spec.builder for spec in SPECS))
_OF_THE_DEVICE = needs.ops(dict.fromkeys(spec.builder for spec in SPECS if not spec.host))


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [
        pytest.param(spec, dtype, id=f"{spec.name}-{NAMES[dtype]}", marks=pytest.mark.needs(spec.builder))
        for spec in SPECS
        for dtype in spec.types
    ],
)
def test_samples_are_right(
    accelerator: DeepSpeedAccelerator, op: Any, device: torch.device, spec: OpSpec, dtype: torch.dtype
) -> None:
    """A function gives what its definition gives in float64, on numbers of every size, shape and kind, and no more."""
    if dtype.is_floating_point and dtype != torch.float32 and not spec.host:
        needs.types(accelerator, dtype)
    holds = Holds()
    for number, sample in enumerate(spec.samples(Numbers(dtype))):
        for problem in problems(spec, op, sample, device, dtype):
            holds[f"sample {number} ({sample.what}): {problem}"] = False
        holds[f"sample {number}"] = True
    do = f"compare {spec.function} of {spec.builder} with accel_ops.reference; compute in float32 and round once"
    holds.expect(f"{spec.name} in {NAMES[dtype]}", do)


# ------------------------------------------------------------------------------ wrong arguments


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=f"{spec.builder}-{spec.function}", marks=pytest.mark.needs(spec.builder))
        for spec in SPECS
        if spec.rejects
    ],
)
def test_arguments_that_do_not_fit_are_refused(op: Any, device: torch.device, spec: OpSpec) -> None:
    """Arguments, in turn or together, have another type, size, number or dimension: no result, no crash."""
    arguments = spec.first(torch.float16).placed(device, torch.float16)
    spec.of(op, torch.float16)(*copies(arguments).values())  # what is refused below is the change
    holds = Holds()
    for change, spoiled in _spoiled(spec, arguments, device):
        problem = _trial(op, spec, change, spoiled)
        holds[f"{spec.function}({change}) is refused as it should be: {problem}"] = not problem
    do = "compare types and sizes first, and raise an error that begins with the function and names an argument"
    holds.expect(f"{spec.builder} with arguments that do not fit", do)


def _spoiled(spec: OpSpec, arguments: Values, device: torch.device) -> Iterator[tuple[str, Values]]:
    """Yield what was changed, and the arguments."""
    for name, value in arguments.items():
        changes = _of_tensor(value) if isinstance(value, torch.Tensor) else spec.numbers.get(name, {})
        for kind, changed in changes.items():
            if (name, kind) not in spec.taken:
                yield f"{name}, {kind}", {**copies(arguments), name: changed}
    for what, together in spec.together.items():
        yield what, {**copies(arguments), **copies(together, device)}
    yield from _together(spec, arguments)


def _together(spec: OpSpec, arguments: Values) -> Iterator[tuple[str, Values]]:
    """Yield what is wrong although the tensors are alike: each is of integers, or has a dimension more."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    (first, one), *others = tensors.items()
    if others and one.is_floating_point() and (first, TYPE) not in spec.taken:
        changed = {
            name: each.int() if each.is_floating_point() else each.clone() for name, each in tensors.items()
        }
        yield f"{first} and others, {TYPE}", {**arguments, **changed}
    alike = [name for name, each in tensors.items() if each.shape == one.shape]
    if len(alike) > 1 and (first, MORE) not in spec.taken:
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


def _trial(op: Any, spec: OpSpec, change: str, arguments: Values) -> str:
    """Return what is wrong; empty if the call is refused as it should be."""
    try:
        spec.of(op, torch.float16)(*arguments.values())
    except AccelError as error:
        said = found = error.message
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        said = found = str(error)
    else:
        return "it is taken"
    if not re.search(rf"\b{spec.said or spec.function}\b", said):
        return f"the error does not say which function: {said}"
    changed = change.partition(",")[0]
    names = arguments if changed in arguments else spec.together.get(change, ())
    asked = [changed] if changed in spec.named else list(names)
    says = any(re.search(rf"\b{name}\b", found) for name in asked)
    sized = spec.sizes and changed not in spec.named and re.search(r"\d|\bshape\b", found)
    return f"the error does not name an argument: {found}" if asked and not says and not sized else ""


# ------------------------------------------------------------- results that stay, strides, threads


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Return whether two results are of one type and shape, and near."""
    wanted = wanted.detach().cpu()
    return found.dtype == wanted.dtype and error(found, wanted, 1e-3 * (1 + wanted.double().abs())) <= 1


def _turned(arguments: Values) -> Values:
    """Return other arguments of the same sizes."""
    turned: Values = tree_map_only(
        torch.Tensor,
        lambda each: each.flip(0 if each.shape[0] > 1 else -1) if each.dim() else each,
        arguments,
    )
    return turned


@pytest.mark.parametrize("name", _BUILDERS)
def test_results_are_new(op: Any, device: torch.device, name: str) -> None:
    """A second call, with other numbers, leaves the first one's results; the same arguments give the same results."""
    holds = Holds()
    for spec in of_builder(name):
        first = spec.first(torch.float32).placed(spec.place(device), torch.float32)
        again, second = copies(first), _turned(first)
        found = spec.call(op, torch.float32, first)
        kept = [tensor.clone() for tensor in found]
        other = spec.call(op, torch.float32, second)
        for at, (one, tensor) in enumerate(zip(found, kept, strict=True)):
            holds[f"result {at} of {spec.function} stays when it is called again"] = (
                equal(one, tensor) or spec.shares
            )
        changed = any(not _alike(*pair) for pair in zip(other, kept, strict=True))
        # The indices are sorted already.
        holds[f"other arguments of {spec.function} give other results"] = (
            changed or spec.function == "token_sort_"
        )
        same = all(_alike(*pair) for pair in zip(spec.call(op, torch.float32, again), kept, strict=True))
        holds[f"the same arguments of {spec.function} give the same results"] = same or spec.random
    holds.expect(name, "write what is to be written, and compute at each call")


@pytest.mark.parametrize("name", _BUILDERS)
def test_any_argument_may_have_strides(op: Any, device: torch.device, name: str) -> None:
    """Each tensor in turn, also one that is written, lies in another order or with gaps: read so, or refused."""
    holds = Holds()
    for spec in of_builder(name):
        if spec.random:  # numbers are drawn in the order of memory
            continue
        # The first sample, and some of other flags, bits and kinds.
        for sample in itertools.islice(spec.samples(Numbers(torch.float32)), 0, None, 25):
            arguments = sample.placed(spec.place(device), torch.float32)
            wanted = [each.clone() for each in spec.call(op, torch.float32, copies(arguments))]
            for what, changed in _strided(arguments):
                try:
                    found = spec.call(op, torch.float32, changed)
                except Exception:  # refused
                    continue
                alike = len(found) == len(wanted) and all(map(_alike, found, wanted))
                case = f"{what} of {spec.name} ({sample.what})"
                holds[case] = alike
                holds[f"memory between numbers, {case}"] = all(map(is_framed, tensors_in(changed)))
    holds.expect(name, "read strides, or a contiguous copy; do not take data_ptr() of anything")


def _strided(arguments: Values) -> Iterator[tuple[str, Values]]:
    """Yield what was changed, one argument or all, and the arguments."""
    names = [name for name, value in arguments.items() if tensors_in(value)]
    for changed in (*([name] for name in names), names):
        for form, others in strided({name: arguments[name] for name in changed}).items():
            yield f"{', '.join(changed)} {form}", copies(arguments) | others


@pytest.mark.parametrize("name", _BUILDERS)
def test_calls_from_several_threads_are_right(op: Any, device: torch.device, name: str) -> None:
    """Threads that call the functions of one op at the same time, with other numbers, each get their own results."""

    def call(number: int) -> str:
        for spec in (each for each in of_builder(name) if not each.shares):
            for sample in itertools.islice(spec.samples(Numbers(torch.float32)), number, number + 1):
                for problem in problems(spec, op, sample, device, torch.float32):
                    return f"{spec.function} in thread {number}: {problem}"
        return ""

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(call, range(4)))
    holds = Holds({f"no problem: {problem}": not problem for problem in found})
    holds.expect(f"{name} in four threads", "keep no buffer between calls, or one for each thread")


def _replayed(accelerator: DeepSpeedAccelerator, spec: OpSpec, op: Any, first: Values, second: Values) -> Any:
    """Capture a call, replay it on the second call's numbers; return its results, None if capturing is refused."""
    found: list[torch.Tensor] = []

    def call() -> None:
        found[:] = spec.call(op, torch.float32, first)

    try:
        with accelerator.stream(accelerator.current_stream()):  # which a capture that fails may leave another
            graph = captured(accelerator, call)
    except Exception:  # refused
        return None
    for value, other in zip(tensors_in(first), tensors_in(second), strict=True):
        value.copy_(other)
    accelerator.replay_graph(graph)
    return found


@pytest.mark.needs("graphs")
@pytest.mark.parametrize("name", _OF_THE_DEVICE)
def test_captured_call_reads_new_numbers(
    accelerator: DeepSpeedAccelerator, device: torch.device, name: str
) -> None:
    """A call in a graph computes, at a replay, on what its arguments hold then; or the capture raises an error."""
    op, holds = accelerator.create_op_builder(name).load(), Holds()
    for spec in of_builder(name):
        first = copies(spec.first(torch.float32).placed(device, torch.float32))
        second = _turned(first)
        wanted = [each.clone() for each in spec.call(op, torch.float32, copies(second))]
        found = None if spec.random else _replayed(accelerator, spec, op, first, second)
        holds[f"a replay of {spec.function}"] = found is None or all(map(_alike, found, wanted))
    holds.expect(
        f"{name} in a graph", "launch all work in the current stream, and keep no number on the host"
    )
