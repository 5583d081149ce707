# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Follows a program through its phases, steps and modules, whatever trains it, and says what memory is for.

Hooks: calls of modules, `torch.autograd.backward` and `grad`, and `step` of optimizers. `program` adds DeepSpeed's.
Kinds of memory: what optimizers and models hold is known, the rest follows from where it was made.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from accel_rehearse.record import KINDS, PHASES

INIT, FORWARD, BACKWARD, STEP, CHECKPOINT, OTHER = range(len(PHASES))
#: In a module's own dictionary: the number of its path.
_NUMBER = "_accel_rehearse_module"
_FIRST = re.compile(r"^(module|model\.module|_orig_mod)\.")


class Rehearsed(BaseException):
    """Ends the program after its last rehearsed step; no Exception, which programs catch."""


class Phases:
    """Current phase of the program, and how often each has run.

    native: the extension of the dry run, device: a type. limit: steps to rehearse. steps: those that were taken.
    paths: paths of modules by number. failed: id of the latest exception, phase and path of the module in which it
    was raised.
    """

    def __init__(self, native: Any, device: str, limit: int) -> None:
        self.native, self.device, self.limit = native, device, limit
        self.steps = 0
        self.paths, self._numbers = [""], {"": 0}
        # Memory that the program gives up is not to be kept here.
        self.roots: WeakSet[Any] = WeakSet()
        self.optimizers: WeakSet[Any] = WeakSet()
        self.engines: WeakSet[Any] = WeakSet()
        self.timeline: list[tuple[int, int]] = []
        # The exception itself would keep the tensors of its frames.
        self.failed: tuple[int, int, str] = (0, INIT, "")
        self._alike: list[int] = [0]
        self._now = INIT
        self._stack: list[int] = []
        self._taken: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._optimizing = False
        self._main = threading.main_thread()

    @contextmanager
    def inside(self, phase: int) -> Iterator[None]:
        """Run a part of the program as a phase; within another one it belongs to that, except in a closure."""
        if not self._between():
            yield
            return
        outer = self._now
        if phase in (FORWARD, BACKWARD):
            self.end_after(self.steps)
        self.failed = 0, outer, ""
        self._enter(phase)
        try:
            yield
        except BaseException as error:
            self.raised(error)
            raise
        else:
            if phase != FORWARD or not self.steps:
                _label_all(self)
        finally:
            self._enter(outer if outer == STEP or phase in (INIT, CHECKPOINT) else OTHER)

    def _between(self) -> bool:
        """Return whether what is called now is its own phase, also in the closure of an optimizer's step."""
        return self._now in (INIT, OTHER) or (self._optimizing and self._now == STEP)

    def raised(self, error: BaseException) -> None:
        """Remember where an exception was raised, at its first phase or module from the inside."""
        if self.failed[0] != id(error):
            self.failed = id(error), self._now, self.paths[self._stack[-1]] if self._stack else ""

    def end_after(self, steps: int) -> None:
        """End the program if so many steps are all that were to be rehearsed."""
        if steps >= self.limit and threading.current_thread() is self._main:
            raise Rehearsed

    def step_is_taken(self) -> None:
        """Count a step of the optimizer."""
        self.steps += 1
        self.timeline = self.native.begin_step(self.steps == 1 < self.limit)

    def _enter(self, phase: int) -> None:
        self._now = phase
        self.native.phase(phase)

    # ------------------------------------------------------------------------------------------ hooks
    def install(self) -> None:
        """Hook torch."""
        self._enter(INIT)
        self._hook_modules()
        for name in ("backward", "grad"):
            setattr(torch.autograd, name, self.wrapped(getattr(torch.autograd, name), BACKWARD))
        optimizer: Any = torch.optim.Optimizer
        stock = optimizer.profile_hook_step
        optimizer.profile_hook_step = staticmethod(lambda step: self._step(stock(step)))

    def wrapped(self, function: Callable[..., Any], phase: int) -> Callable[..., Any]:
        """Return a function that is a phase."""

        @functools.wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            with self.inside(phase):
                return function(*arguments, **options)

        return run

    def _hook_modules(self) -> None:
        stock, stack, native = torch.nn.Module.__call__, self._stack, self.native

        # A hook of torch's does not see a module that is left by an exception, as a checkpoint's recomputation is.
        def call(module: torch.nn.Module, /, *arguments: Any, **options: Any) -> Any:
            if not stack and self._between():
                return self._forward(stock, module, *arguments, **options)
            number = module.__dict__.get(_NUMBER, 0)
            stack.append(number)
            native.module(number, self._alike[number])
            try:
                return stock(module, *arguments, **options)
            except BaseException as error:
                self.raised(error)
                raise
            finally:
                stack.pop()
                outer = stack[-1] if stack else 0
                native.module(outer, self._alike[outer])

        self._call = call
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def _forward(self, stock: Any, module: torch.nn.Module, /, *arguments: Any, **options: Any) -> Any:
        """Call the outermost module."""
        self.learn(module)
        if not self.steps and self._now == INIT:
            self.native.begin_step(True)
        with self.inside(FORWARD):
            return self._call(module, *arguments, **options)

    def learn(self, root: torch.nn.Module) -> None:
        """Remember the paths of a model's modules."""
        if root in self.roots:
            return
        self.roots.add(root)
        for path, module in root.named_modules():
            while _FIRST.match(path):
                path = _FIRST.sub("", path)
            name = path if path not in ("", "module") else type(module).__name__
            module.__dict__.setdefault(_NUMBER, self._number(name))

    def _number(self, path: str) -> int:
        if path not in self._numbers:
            self._numbers[path] = len(self.paths)
            self.paths.append(path)
            self._alike.append(0)
            alike = re.sub(r"\b\d+\b", "*", path)
            self._alike[self._numbers[path]] = self._number(alike)
        return self._numbers[path]

    def _step(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """Return an optimizer's `step` that is a phase, and counts if it is not part of an engine's."""

        @functools.wraps(stock)
        def step(optimizer: Any, /, *arguments: Any, **options: Any) -> Any:
            self.optimizers.add(optimizer)
            if self._now not in (INIT, OTHER):
                return stock(optimizer, *arguments, **options)
            taken = self._taken.get(optimizer, 0)
            self.end_after(taken)
            self._optimizing = True
            try:
                with self.inside(STEP):
                    result = stock(optimizer, *arguments, **options)
            finally:
                self._optimizing = False
            self._taken[optimizer] = taken + 1
            if taken >= self.steps:  # of several optimizers the first counts
                self.step_is_taken()
            return result

        return step


# ------------------------------------------------------------------------------------- kinds of memory
#: Labels of the ledger: 0 is unknown, the others are indices of KINDS plus one.
_PARAMETERS, _GRADIENTS, _STATES, _MASTER, _ACTIVATIONS, _BUCKETS, _TEMPORARIES, _OTHER = range(
    1, len(KINDS) + 1
)
#: Parts of the names of a ZeRO optimizer's attributes, in the order in which they decide.
_ATTRIBUTES = (
    (("bucket",), _BUCKETS),
    (("grad_partitions", "averaged_gradients"), _GRADIENTS),
    (("buffer",), _BUCKETS),
    (("fp32", "master", "single_partition"), _MASTER),
    (("grad",), _GRADIENTS),
    (("bit16", "fp16", "bf16", "lp_param"), _PARAMETERS),
)
#: Containers within containers that are searched.
_DEPTH = 8


def _label_all(phases: Phases) -> None:
    """Label the memory that models, optimizers and engines hold: the later of two labels counts."""
    held: list[tuple[Any, int]] = []
    for optimizer in list(phases.optimizers):
        held += _states(optimizer)
    for engine in list(phases.engines):
        held += _of_zero(getattr(engine, "optimizer", None))
    for root in list(phases.roots):
        for param in root.parameters():
            held += (
                (param, _PARAMETERS),
                (getattr(param, "ds_tensor", None), _PARAMETERS),
                (param.grad, _GRADIENTS),
            )
    for value, kind in held:
        for tensor in tensors(value):
            if tensor.device.type == phases.device and tensor.numel():
                phases.native.label(tensor.data, kind)


def _states(optimizer: Any) -> list[tuple[Any, int]]:
    return [(state, _STATES) for state in list(getattr(optimizer, "state", {}).values())]


def _of_zero(optimizer: Any) -> list[tuple[Any, int]]:
    """Return what an optimizer of DeepSpeed holds, by the names of its attributes."""
    held = []
    for name, value in list(vars(optimizer).items() if hasattr(optimizer, "__dict__") else ()):
        kind = next(
            (kind for parts, kind in _ATTRIBUTES if any(part in name.lower() for part in parts)), None
        )
        held += [] if kind is None else [(value, kind)]
    return held + _states(getattr(optimizer, "optimizer", None) or optimizer)


def tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value and its containers; of a DTensor the local part."""
    if isinstance(value, torch.Tensor):
        yield getattr(value, "_local_tensor", value)
    elif depth < _DEPTH:
        inner: Any = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (dict, list, tuple)):
            inner = [value.buffer] if hasattr(value, "buffer") else ()  # of an IPGBucket
        for each in list(inner):
            yield from tensors(each, depth + 1)


def kind_of(row: tuple[Any, ...], label: int, learned: dict[tuple[Any, ...], int]) -> str:
    """Return the kind of memory that was made at a place. learned: labels of memory from there, once it was known."""
    label = label or learned.get(row[1:], 0)
    if label:
        return KINDS[label - 1]
    phase, _module, library, _program, node = row
    if any(part in library for part in ("partition_parameters", "param_coordinator", "_fsdp_collectives")):
        return KINDS[_PARAMETERS - 1]
    if phase == INIT and not any(
        part in library for part in ("runtime/zero", "runtime/fp16", "runtime/bf16")
    ):
        return KINDS[
            _PARAMETERS - 1
        ]  # a model that was moved to the device, before it was flattened or partitioned
    if phase == FORWARD or (phase == BACKWARD and "checkpoint" in library):
        return KINDS[_ACTIVATIONS - 1]
    if phase == BACKWARD and any(part in library for part in ("zero/stage", "stage_1_and_2", "stage3")):
        return KINDS[_BUCKETS - 1]
    if phase == BACKWARD and "AccumulateGrad" in node:
        return KINDS[_GRADIENTS - 1]
    return KINDS[(_OTHER if phase not in (INIT, BACKWARD, STEP) else _TEMPORARIES) - 1]


def learn(rows: Iterable[tuple[tuple[Any, ...], int]]) -> dict[tuple[Any, ...], int]:
    """Return the label of each place all of whose labelled memory has the same one."""
    found: dict[tuple[Any, ...], int] = {}
    for row, label in rows:
        if label and found.setdefault(row[1:], label) != label:
            found[row[1:]] = 0
    return found
