# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Follows a program through its phases, steps and modules, whatever trains it.

Hooks: calls of modules, `torch.autograd.backward` and `grad`, and `step` of optimizers. `engine` adds DeepSpeed's.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from accel_sim.rehearse.record import PHASES

INIT, FORWARD, BACKWARD, STEP, CHECKPOINT, OTHER = range(len(PHASES))
#: In a module's own dictionary: the number of its path.
_NUMBER = "_accel_rehearse_module"
_FIRST = re.compile(r"^(module|model\.module|_orig_mod)\.")


class Rehearsed(BaseException):
    """Ends the program after its last rehearsed step; no Exception, which programs catch."""


class Phases:
    """What the program is doing, and how often it did it.

    native: the simulated device's extension. limit: steps to rehearse. steps: those that were taken.
    paths: paths of modules by number. ends: called with each phase that has ended without an error.
    failed: id of the latest exception, phase and path of the module in which it was raised.
    """

    def __init__(self, native: Any, limit: int) -> None:
        self.native, self.limit = native, limit
        self.steps = 0
        self.paths, self._numbers = [""], {"": 0}
        self.ends: list[Callable[[int], None]] = []
        # Memory that the program gives up is not to be kept here.
        self.roots: WeakSet[Any] = WeakSet()
        self.optimizers: WeakSet[Any] = WeakSet()
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
            for end in self.ends:
                end(phase)
        finally:
            self._enter(outer if outer == STEP or phase in (INIT, CHECKPOINT) else OTHER)

    def _between(self) -> bool:
        """Return whether what is called now is a phase of its own, also in the closure of an optimizer's step."""
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
        self.timeline = self.native.dry_timeline()
        self.native.dry_begin_step()
        if self.steps == 1 < self.limit:
            self.native.dry_reset_collectives()

    def _enter(self, phase: int) -> None:
        self._now = phase
        self.native.dry_phase(phase)

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
            native.dry_module(number, self._alike[number])
            try:
                return stock(module, *arguments, **options)
            except BaseException as error:
                self.raised(error)
                raise
            finally:
                stack.pop()
                outer = stack[-1] if stack else 0
                native.dry_module(outer, self._alike[outer])

        self._call = call
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def _forward(self, stock: Any, module: torch.nn.Module, /, *arguments: Any, **options: Any) -> Any:
        """Call the outermost module."""
        self.learn(module)
        if not self.steps and self._now == INIT:
            self.native.dry_begin_step()
            self.native.dry_reset_collectives()
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
        """Return an optimizer's `step` that is a phase, and counts if it is no part of an engine's."""

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
