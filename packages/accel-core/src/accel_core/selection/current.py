# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The current accelerator of a process: select, construct and keep it, and explain the choice."""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from accel_core import env
from accel_core.devices import SUPPORTED_ACCELERATOR_LIST
from accel_core.errors import AccelError, NoAccelerator, NotAnAccelerator, in_short
from accel_core.interface import DeepSpeedAccelerator
from accel_core.selection import messages
from accel_core.selection.candidates import (
    Candidate,
    CandidateSet,
    DeepSpeed,
    State,
    about_to,
    broken_by,
    is_worker,
    privateuse1_holder,
)
from accel_core.selection.choose import Decision, Request, choose
from accel_core.vendor import Vendor, module_exists, resolve

_log = logging.getLogger("accel_core")
#: Base classes whose instances are accelerators. The upstream bridge adds DeepSpeed's own.
ACCELERATOR_BASES: list[type] = [DeepSpeedAccelerator]

#: Number of missing methods that an error message lists.
_NAMED = 5


def construct(vendor: Vendor) -> Any:
    """Return a new accelerator of a vendor. Raises NotAnAccelerator, or what its import or constructor raises."""
    accelerator = validated(resolve(vendor.accelerator)())
    if untested := _untested(vendor):
        level = logging.WARNING if env.is_local_rank_zero() else logging.DEBUG
        _log.log(level, "%s. If something fails that the device can do, try a tested release.", untested)
    return accelerator


def _untested(vendor: Vendor) -> str:
    """Return what a user has to know about the release of the runtime; empty if nothing."""
    try:
        return vendor.evidence().untested
    except Exception:
        return ""  # a chosen vendor whose probe fails was asked for: the selection has said so


def validated(accelerator: Any) -> Any:
    """Return the object if it is an accelerator; else raise NotAnAccelerator with the missing methods."""
    if isinstance(accelerator, tuple(ACCELERATOR_BASES)):
        return accelerator
    missing = sorted(
        (name for name in DeepSpeedAccelerator.__abstractmethods__ if not hasattr(accelerator, name)),
        key=str.swapcase,  # methods before tensor types
    )
    listed = ", ".join(missing[:_NAMED]) + (", …" if len(missing) > _NAMED else "")
    wrong = (
        f"lacks {len(missing)} methods ({listed})" if missing else "does not derive from DeepSpeedAccelerator"
    )
    raise NotAnAccelerator(
        f"{accelerator!r} of type {type(accelerator).__name__} is not an accelerator: it {wrong}",
        do=f"pass an instance{', not the class: add ()' if inspect.isclass(accelerator) else ''} of a vendor package's "
        "class, such as `from accel_cpu import CPU_Accelerator`, then CPU_Accelerator(), or of one derived from "
        "accel_core.TorchDeviceAccelerator; for a key: `with accel_core.using('cpu')`, or DS_ACCELERATOR=cpu before "
        "the program starts",
    )


@dataclass(frozen=True)
class Selection:
    """The outcome of a selection: the decision, and the accelerator unless it failed."""

    request: Request
    decision: Decision
    accelerator: Any = None


def request_from_environment(upstream: frozenset[str] | None) -> Request:
    """Return the request that DS_ACCELERATOR and the ACCEL_* variables describe."""
    return Request(
        asked=env.DS_ACCELERATOR.raw(),
        strict=env.STRICT.on(),
        skip=env.SKIP.names(),
        claimed=privateuse1_holder(),
        upstream=upstream,
    )


def run_selection(
    candidates: CandidateSet,
    request: Request,
    ask: Callable[[Candidate], tuple[Candidate, str]],
    build: Callable[[Candidate], Any],
) -> Selection:
    """Carry out the decisions of `choose`: a run in its own process, the doctor in child processes.

    ask:   confirms a candidate; returns the candidate and the backend that holds torch's PrivateUse1 slot.
    build: returns the accelerator of a candidate, or a candidate with the error.
    """
    while True:
        decision = choose(candidates.all, request)
        candidate = decision.candidate
        if candidate is None:
            return Selection(request, decision)
        if candidate.state is State.PENDING:
            answer, claimed = ask(candidate)
            candidates.put(answer)
            request = replace(request, claimed=claimed)
            continue
        accelerator = build(candidate)
        if isinstance(accelerator, Candidate):
            candidates.put(accelerator)
            continue
        return Selection(request, decision, accelerator)


def _torch_fails() -> BaseException | None:
    """Return the exception of `import torch`; None if it works or torch is not installed."""
    if "torch" in sys.modules or not module_exists("torch"):
        return None
    try:
        with about_to("import torch, and the backend extensions that it calls"):
            importlib.import_module("torch")
        return None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error


def _advice(vendor: Vendor) -> str:
    """Return the advice if the class derives from DeepSpeed's own and its module was imported before deepspeed."""
    name = vendor.accelerator.partition(":")[0]
    half_imported = getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)
    return f"import deepspeed before {name}" if vendor.imports_deepspeed and half_imported else ""


def _unbuildable(candidate: Candidate, error: BaseException, advice: str) -> Candidate:
    cause = in_short(error) if isinstance(error, AccelError) else f"{type(error).__name__}: {error}"
    return broken_by(candidate, error, f"its accelerator cannot be constructed: {cause}", advice)


class CurrentAccelerator:
    """The current accelerator and the selection that chose it; `accel_core.api.CURRENT` is the one of the process.

    deepspeed: the installed DeepSpeed, as the selection uses it.
    """

    def __init__(self, deepspeed: DeepSpeed) -> None:
        self.deepspeed = deepspeed
        self._accelerator: Any = None
        self._selection: Selection | None = None
        #: The selection whose warnings have been logged.
        self._warned: Selection | None = None
        self._selecting = False
        self._deepspeed_asked = False
        self._quiet = False
        self._lock = threading.RLock()
        self._listeners: list[Callable[[Any], None]] = []
        #: The public `get_accelerator`.
        self.get: Callable[[], DeepSpeedAccelerator]
        self._set_ready: Callable[[Any], None]
        self.get, self._set_ready = _getter(self._select_once)

    def set(self, accel: DeepSpeedAccelerator | None) -> None:
        """Set the accelerator of the process; None clears it, and any failed selection.

        Raises NotAnAccelerator (a TypeError and AssertionError) for any other object, without a change.
        """
        with self._lock:
            if accel is not None:
                validated(accel)
                _log.info("accelerator set to %s by the program", type(accel).__name__)
            former, self._selection = self._selection, None
            try:
                self._publish(accel)
            except BaseException:
                self._selection = former
                raise
            self._set_ready(accel)

    @contextmanager
    def using(self, accel: DeepSpeedAccelerator | str) -> Iterator[DeepSpeedAccelerator]:
        """Use this accelerator inside a `with` block, in the whole process; the previous one is restored after it.

        A key, such as `cpu`, stands for a new accelerator of the installed vendor, as DS_ACCELERATOR chooses it.
        """
        former = self.state()
        used: DeepSpeedAccelerator = self._of_key(accel) if isinstance(accel, str | None) else accel
        self.set(used)
        try:
            yield used
        finally:
            self.restore(former)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Log the warnings of a selection in this block for debugging only: the processes that it starts log them."""
        former, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = former

    def is_supported(self) -> bool:
        """Return whether the name of the current accelerator is one of DeepSpeed's."""
        return self.get().device_name() in SUPPORTED_ACCELERATOR_LIST

    def on_change(self, listener: Callable[[Any], None]) -> None:
        """Call the listener with the accelerator (or None) at every change, and now if there is one."""
        self._listeners.append(listener)
        if self._accelerator is not None:
            listener(self._accelerator)

    def state(self) -> tuple[Any, Selection | None]:
        """Return the current accelerator and the selection that chose it. Does not select."""
        return self._accelerator, self._selection

    def restore(self, state: tuple[Any, Selection | None]) -> None:
        """Restore a state that `state` returned."""
        with self._lock:
            accelerator, self._selection = state
            self._publish(accelerator)

    def _of_key(self, key: str | None) -> Any:
        selection = self._select(key or "", lambda: self.deepspeed.load())
        error = selection.decision.error
        if error is not None:
            raise NotAnAccelerator(
                in_short(error).replace(env.DS_ACCELERATOR.name, "using()"),
                do=f"pass an installed vendor's key, or an accelerator object; `accel doctor` shows why {key!r} cannot "
                "be used",
            ) from error
        self._log(
            warning.replace(f"{env.DS_ACCELERATOR.name}={key}", f"using({key!r})")
            for warning in selection.decision.warnings
        )
        return selection.accelerator

    def _select(self, asked: str | None, import_deepspeed: Callable[[], Any]) -> Selection:
        """Select and construct the accelerator. The error of a failed selection is in the decision, not raised.

        import_deepspeed: returns the accelerator that the import selected, if that is the one to use.
        """
        if error := _torch_fails():
            return Selection(Request(), Decision(None, (), error=messages.torch_fails(error)))
        request = replace(request_from_environment(self.deepspeed.keys()), asked=asked)
        candidates = CandidateSet(self.deepspeed, asked)

        def confirm(candidate: Candidate) -> tuple[Candidate, str]:
            return candidates.confirm(candidate), privateuse1_holder()

        def build(candidate: Candidate) -> Any:
            vendor = candidates.vendor(candidate)
            deepspeed_first = vendor is None or vendor.imports_deepspeed
            self._deepspeed_asked = False
            while True:
                try:
                    accelerator = import_deepspeed() if deepspeed_first else None
                    if accelerator is not None:
                        return accelerator
                    with about_to(f"import and construct the accelerator of {candidate.label}"):
                        return (
                            self.deepspeed.accelerator(candidate.key) if vendor is None else construct(vendor)
                        )
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    if deepspeed_first or not self._deepspeed_asked or not isinstance(error, Exception):
                        return _unbuildable(candidate, error, "" if vendor is None else _advice(vendor))
                # The class derives from DeepSpeed's own without `imports_deepspeed` in its record. Try again with
                # deepspeed imported first, as in a program that begins with deepspeed.
                deepspeed_first = True

        return run_selection(candidates, request, confirm, build)

    def _select_once(self) -> DeepSpeedAccelerator:
        with self._lock:
            if self._accelerator is None and self._selection is None:
                self._decide()
            selection = self._selection
            if self._accelerator is None and selection is not None and selection.decision.error is not None:
                # A copy, so that callers do not share a traceback, which would also keep frames alive.
                raise copy.copy(selection.decision.error)
            if selection is None or selection is self._warned or not self.deepspeed.importing():
                self._warn(selection)
            accelerator: DeepSpeedAccelerator = self._accelerator
            return accelerator

    def _warn(self, selection: Selection | None) -> None:
        """Log the warnings of the selection once, at the first use of the accelerator.

        The import of deepspeed does not count: the program may set another accelerator right after it.
        """
        self._set_ready(self._accelerator)
        if selection is None or selection is self._warned:
            return
        self._warned = selection
        self._log(selection.decision.warnings)

    def _log(self, warnings: Iterable[str]) -> None:
        others_warn = self._quiet or self.deepspeed.launching() or is_worker() or not env.is_local_rank_zero()
        for warning in warnings:
            _log.log(logging.DEBUG if others_warn else logging.WARNING, "%s", warning)

    def _decide(self) -> None:
        if self._selecting:
            self._deepspeed_asked = self.deepspeed.importing()
            raise _reentered()
        self._selecting = True
        try:
            selection = self._select(env.DS_ACCELERATOR.raw(), self._after_importing_deepspeed)
        finally:
            self._selecting = False
        if self._selection is not None:
            return  # importing deepspeed has selected in the meantime; keep that outcome
        self._selection = selection
        if selection.decision.error is None:
            self._publish(selection.accelerator)

    def _after_importing_deepspeed(self) -> Any:
        """Import deepspeed during a selection; returns the accelerator that its import selected, if any."""
        self._selecting = False
        # Another thread may be importing deepspeed, and call `get` while it holds Python's import lock.
        self._lock.release()
        try:
            self.deepspeed.load()
        finally:
            self._lock.acquire()
            self._selecting = True
        return self._accelerator

    def _publish(self, accel: Any) -> None:
        former, self._accelerator = self._accelerator, accel
        self._set_ready(None)  # a listener that calls `get` gets the new one
        notified: list[Callable[[Any], None]] = []
        try:
            for listener in self._listeners:
                notified.append(listener)
                listener(accel)
        except BaseException:
            # If a listener raises (because the op table is broken, say), no listener may keep the new accelerator.
            self._accelerator = former
            for listener in notified[:-1]:
                listener(former)
            raise


def _getter(select_once: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return `get_accelerator` and a setter of its result (None: call `select_once`).

    DeepSpeed calls it many thousand times per step. Reading a closure's variable takes half the time of a bound
    method and an attribute.
    """
    ready: Any = None

    def get_accelerator() -> Any:
        """Return the accelerator of this process, selected at the first call.

        After a failed selection every call raises the same error, until `set_accelerator` is called: one of
        ACC-2xx (`ValueError` or `RuntimeError`), see docs/errors.md.
        """
        return select_once() if ready is None else ready

    def set_ready(accelerator: Any) -> None:
        nonlocal ready
        ready = accelerator

    return get_accelerator, set_ready


def _reentered() -> AccelError:
    return NoAccelerator(
        "get_accelerator() was called while the accelerator was being selected: a vendor's import "
        "calls get_accelerator(), perhaps by importing deepspeed",
        do="call get_accelerator() in the vendor's functions, not while its modules are imported",
    )


@dataclass(frozen=True)
class Explanation:
    """The chosen accelerator, the reason, and the state of every candidate.

    chosen: key of the accelerator in use; empty if the selection failed.
    how:    the reason in one sentence.
    error:  the text of the error, if the selection failed.
    """

    chosen: str
    how: str
    candidates: tuple[Candidate, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return self.error
        lines = [f"accelerator: {self.chosen} ({self.how})"]
        reported = [
            f for f in self.candidates if f.state not in (State.NOT_INSTALLED, State.CHOSEN, State.DEFERRED)
        ]
        notable = [f for f in reported if messages.is_notable(f)]
        lines += [
            f"  {candidate.label}: {candidate.state.value}: {candidate.reason}" for candidate in notable
        ]
        if others := ", ".join(f.label for f in reported if f not in notable):
            lines.append(f"  neither usable runtime nor device: {others}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for JSON."""
        return {
            "chosen": self.chosen,
            "how": self.how,
            "error": self.error,
            "warnings": list(self.warnings),
            "candidates": [
                {**asdict(candidate), "state": candidate.state.value, "label": candidate.label}
                for candidate in self.candidates
            ],
        }


def explained(selection: Selection, others: Iterable[Candidate] = ()) -> Explanation:
    """Explain the outcome of a selection; others: candidates that it did not examine."""
    decision = selection.decision
    chosen = decision.candidate
    # Those that are pending are not confirmed in this process.
    candidates = tuple(
        one.now(State.OUTRANKED) if one.state is State.PENDING else one
        for one in sorted((*decision.candidates, *others), key=lambda one: -one.priority)
    )
    if decision.error is not None or chosen is None:
        return Explanation("", "selection failed", candidates, (), str(decision.error))
    asked = f"DS_ACCELERATOR={selection.request.asked}" if selection.request.asked is not None else "detected"
    own = ", DeepSpeed's own backend" if chosen.upstream else f", {chosen.package} {chosen.version}".rstrip()
    return Explanation(chosen.key, f"{asked}{own}: {chosen.reason}", candidates, decision.warnings)
