# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Records what this process computes, by hooks of torch: see `watch` for how it is reached.

Events are numbered by optimizer steps: a step begins with the first forward pass after an optimizer has stepped.
Collectives are completed where they are called, so that their results can be read; this changes no value.
"""

from __future__ import annotations

import atexit
import fnmatch
import functools
import inspect
import json
import logging
import multiprocessing.util
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.nn.modules import module as hooks
from torch.nn.parameter import is_lazy
from torch.optim import optimizer as optimizer_hooks
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from accel_compare import draws
from accel_compare.digest import digest
from accel_compare.parameters import InitialParameters
from accel_compare.record import (
    BACKWARD,
    COLLECTIVE,
    FLATTENED,
    FORWARD,
    GRADIENT_OF_PARAMETER,
    GRADIENT_OF_RESULT,
    PARAMETER,
    STEP,
    Key,
    Writer,
)
from accel_core.data import from_data
from accel_core.launchers import launched
from accel_core.lost_devices import is_lost

_log = logging.getLogger("accel_compare")


@dataclass(frozen=True)
class RecorderOptions:
    """Options of a recorder.

    folder:      for the files of the ranks.
    operations:  every operation, not modules alone.
    first, last: steps, counted from 0.
    modules:     patterns of module paths, as `*.attention`; empty: all.
    limit:       bytes a rank.
    draws:       whether a device's random numbers are drawn on the CPU.
    capture:     the event whose inputs are saved (a `Key`, to isolate it); None: nothing is.
    keep:        bytes a rank for initial parameters; 0: they are not kept.
    load:        folder of the record whose initial parameters are loaded; empty: the program's own are used.
    """

    folder: str
    operations: bool = False
    first: int = 0
    last: int = 9
    modules: tuple[str, ...] = ()
    limit: int = 1 << 30
    draws: bool = True
    capture: tuple[int, str, str, str, int] | None = None
    keep: int = 0
    load: str = ""


def start(text: str) -> None:
    """Begin to record in this process; forked children do not."""
    recorder = Recorder(from_data(RecorderOptions, json.loads(text), "ACCEL_COMPARE"))
    recorder.install()
    os.register_at_fork(after_in_child=recorder.pause)
    atexit.register(recorder.close)
    # Processes of multiprocessing leave without running what atexit has.
    multiprocessing.util.Finalize(recorder, recorder.close, exitpriority=0)


class _Thread(threading.local):
    """State of a thread. open: the modules that run in it: path, inputs, and the number of events before."""

    def __init__(self) -> None:
        self.busy = False
        self.open: list[tuple[str, list[int], int]] = []


class Recorder:
    """The hooks of one process, and the file to which they write."""

    def __init__(self, options: RecorderOptions) -> None:
        self._options = options
        self._active, self._stepped, self._stepping = True, False, False
        self._step = self._events = 0
        self._writer: Writer | None = None
        self._lock = threading.RLock()
        self._thread = _Thread()
        self._begun = self._warned = self._drawn_again = False
        self._names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._classes: dict[str, str] = {}  # of modules, by path
        self._parameters: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._known: dict[int, tuple[Any, ...]] = {}  # digests of tensors that did not change since
        self._before: dict[int, list[int]] = {}  # inputs of an optimizer's step, by parameter
        self._shown: set[str] = set()  # parameters that this step has
        self._operations = _Operations(self)
        self._backward_in = ""
        self._gradients: dict[str, list[int]] = {}  # of a module's results; "": of the last one
        self._counts: dict[tuple[Any, ...], int] = {}
        self._initial: InitialParameters | None = None
        if options.keep or options.load:
            folder = Path(options.load or options.folder)
            self._initial = InitialParameters(folder, options.keep, bool(options.load))

    # ---------------------------------------------------------------------------------- life

    def install(self) -> None:
        """Register the hooks of torch."""
        hooks.register_module_forward_pre_hook(self._enter)
        hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        optimizer_hooks.register_optimizer_step_pre_hook(self._before_step)
        optimizer_hooks.register_optimizer_step_post_hook(self._after_step)
        if dist.is_available():
            self._wrap_collectives()
        if self._options.draws:
            draws.on_cpu()
            hooks.register_module_parameter_registration_hook(self._draw_again)
        if self._options.operations:
            # Before any mode of the program, which expects to leave the one that it entered last.
            self._operations.__enter__()  # type: ignore[no-untyped-call]

    def _draw_again(self, *_: object) -> None:
        """A device's runtime may have registered its kernels since, but no parameter is on the device yet."""
        if not self._drawn_again:
            self._drawn_again = True
            draws.on_cpu()

    def pause(self) -> None:
        """Record nothing more in this process."""
        self._active = False

    def close(self) -> None:
        """Write the end of the file."""
        if self._active and self._writer is not None:
            self._writer.close()
        self._active = False

    @property
    def active(self) -> bool:
        """True if this process is recorded at all, and not the recorder's own work."""
        return self._active and not self._thread.busy

    @property
    def recording(self) -> bool:
        """True if an event of the present step is wanted, by code that is not the recorder's own."""
        return self.active and self._options.first <= self._step <= self._options.last and self._is_open()

    @property
    def watches_operations(self) -> bool:
        """True if operations are recorded here."""
        return self._begun and not self._stepping and self.recording

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Record nothing of what runs inside."""
        busy, self._thread.busy = self._thread.busy, True
        try:
            yield
        finally:
            self._thread.busy = busy

    @contextmanager
    def _own_work(self) -> Iterator[None]:
        """Run the recorder's work: it is not recorded, not differentiated, and no mode's."""
        with self._unwatched(), self._lock, torch.no_grad(), _disable_current_modes():
            yield

    def _warn(self, what: str) -> None:
        """Say once that something is not recorded; the program goes on."""
        if not self._warned:
            self._warned = True
            _log.warning("accel compare: %s", what, exc_info=True)

    def _is_open(self) -> bool:
        """Open the file of this rank, once the rank is known; return whether it can be written."""
        if self._writer is None:
            ready = dist.is_available() and dist.is_initialized()
            if not ready and multiprocessing.parent_process() is not None:
                return False  # a worker of a data loader, or a rank that has not joined yet
            rank = dist.get_rank() if ready else launched().rank or 0
            world = dist.get_world_size() if ready else launched().size or 1
            path = Path(self._options.folder, f"rank{rank}.jsonl")
            try:
                self._writer = Writer(path, rank, world, _device(), self._options.limit)
            except OSError:
                self._warn(f"{path} cannot be written: this process is not recorded")
                self.pause()
        elif self._writer.full:
            self._warn(f"{self._options.limit} bytes are reached, or the disk is full: no more is recorded")
            self.pause()
        return self._active

    # -------------------------------------------------------------------------------- events

    def numbers(self, values: Any) -> list[int]:
        """Return the numbers of the digests of all tensors in nested values; of those that can be read."""
        numbers = []
        with self._own_work():
            for value in tree_leaves(values):
                try:
                    if self._writer is not None and _is_readable(value):
                        numbers.append(self._number(value, self._writer))
                except Exception:
                    if is_lost(value.device):
                        raise  # the program's error, which a device may raise only once
                    self._warn(f"a {type(value).__name__} cannot be read, and is left out")
        return numbers

    def event(
        self, phase: str, where: str, name: str, inputs: list[int], results: list[int], inside: int = 0
    ) -> None:
        """Write an event."""
        if self._writer is not None:
            self._writer.event(self._step, phase, where, name, inputs, results, inside)
            self._events += 1

    def _wanted(self, where: str, name: str = "") -> bool:
        """Return whether a module, a parameter, or an operation in a module is recorded."""
        module = where if where in self._classes else where.rpartition(".")[0]
        names = (where, module, self._classes.get(module, ""), name)
        patterns = self._options.modules
        return not patterns or any(fnmatch.fnmatchcase(one, pattern) for pattern in patterns for one in names)

    def _number(self, tensor: torch.Tensor, writer: Writer) -> int:
        version = None if tensor.is_inference() else (tensor._version, tensor.data_ptr(), tensor.shape)
        known = self._known.get(id(tensor))
        if known is not None and version is not None and known[0]() is tensor and known[1] == version:
            number: int = known[2]
            return number
        number = writer.digest(digest(tensor))
        self._known[id(tensor)] = (weakref.ref(tensor), version, number)
        return number

    def _forget(self) -> None:
        """Forget digests: memory was written through other tensors, as ZeRO and fused kernels do."""
        self._known.clear()

    # ------------------------------------------------------------------------------- modules

    def _enter(self, module: torch.nn.Module, inputs: Any) -> None:
        if not self.active:
            return
        if not self._thread.open:
            self._begin(module)
        name = self._names.get(module, type(module).__name__)
        wanted = self.recording and self._wanted(name)
        self._thread.open.append((name, self.numbers(inputs) if wanted else [], self._events))

    def _begin(self, root: torch.nn.Module) -> None:
        """A module runs that no other one has called: name what is in it, and begin a step."""
        self._begun = True
        if self._stepped:
            self._step, self._stepped = self._step + 1, False
            self._gradients.clear()
            self._shown.clear()
            self._forget()
        if root not in self._names:
            top = type(root).__name__
            for path, module in root.named_modules():
                known = self._names.setdefault(module, f"{top}.{path}".rstrip("."))
                self._classes[known] = type(module).__name__
            for path, parameter in root.named_parameters():
                self._name(parameter, f"{top}.{path}")
        if self._initial is not None and self._is_open() and self._writer is not None:
            with self._own_work():
                self._writer.note(self._initial.of(root, self._writer.rank))

    def _name(self, parameter: torch.nn.Parameter, path: str) -> None:
        known = self._parameters.get(id(parameter))
        named = known is not None and known[0]() is parameter
        if not named and parameter.requires_grad and not is_lazy(parameter):
            parameter.register_hook(functools.partial(self._gradient, path, GRADIENT_OF_PARAMETER))
            self._parameters[id(parameter)] = (weakref.ref(parameter), path)

    def _leave(self, module: torch.nn.Module, inputs: Any, named: Any, results: Any) -> None:
        if not self.active or not self._thread.open:
            return
        name, numbers, before = self._thread.open.pop()
        # None: it raised, as recomputation does to leave early.
        if not self.recording or results is None or not self._wanted(name):
            return
        # torch gives keyword inputs to this hook alone. ZeRO 3 has gathered the parameters now, and not yet in
        # `_enter`; buffers are written by the module.
        own = self.numbers(named) + self._own_parameters(module, name)
        left = self.numbers([results, *module.buffers(recurse=False)])
        self.event(FORWARD, name, type(module).__name__, numbers + own, left, self._events - before)
        for result in tree_leaves(results):
            if _is_readable(result) and result.requires_grad:
                result.register_hook(functools.partial(self._gradient, name, GRADIENT_OF_RESULT))

    def _own_parameters(self, module: torch.nn.Module, where: str) -> list[int]:
        numbers = []
        for name, parameter in module.named_parameters(recurse=False):
            number = self.numbers(parameter)
            if number and (path := f"{where}.{name}") not in self._shown:
                self._shown.add(path)
                self.event(FORWARD, path, PARAMETER, [], number)
            numbers += number
        return numbers

    def _gradient(self, where: str, name: str, gradient: torch.Tensor) -> None:
        of_result = name == GRADIENT_OF_RESULT
        if of_result:
            self._backward_in = where
        if not self.recording or not (of_result or self._wanted(where)):
            return
        numbers = self.numbers(gradient)
        # The size of the gradient from which it is computed: next to that, a sum that cancels is rounding.
        source = self._gradients.get("" if of_result else where.rpartition(".")[0], [])
        self.event(BACKWARD, where, name, source, numbers)
        if of_result:
            self._gradients[where] = self._gradients[""] = numbers

    # ------------------------------------------------------------------------ optimizer steps

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._forget()
        self._before = {key: numbers for key, _, numbers in self._trained(optimizer)}
        self._stepping = True  # which operations step an optimizer differs from device to device

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._stepped, self._stepping = True, False
        self._forget()
        for key, path, numbers in self._trained(optimizer, gradient=False):
            self.event(STEP, path, type(optimizer).__name__, self._before.get(key, []), numbers)
        if self._writer is not None:
            self._writer.flush()  # os._exit writes nothing
        self._before = {}
        self._forget()

    def _trained(
        self, optimizer: torch.optim.Optimizer, gradient: bool = True
    ) -> Iterable[tuple[int, str, list[int]]]:
        """Yield identity, name and digests of each parameter that is stepped: itself, its states, its gradient."""
        for g, group in enumerate(optimizer.param_groups if self.recording else []):
            for i, parameter in enumerate(group["params"]):
                known = self._parameters.get(id(parameter))
                path = known[1] if known and known[0]() is parameter else f"{FLATTENED}{g}, parameter {i}"
                if (parameter.grad is None and gradient) or not self._wanted(path):
                    continue
                states = optimizer.state.get(parameter, {})
                same = [
                    states[name]
                    for name in sorted(states, key=str)
                    if isinstance(states[name], torch.Tensor) and states[name].shape == parameter.shape
                ]
                yield id(parameter), path, self.numbers([parameter, *same, *[parameter.grad] * gradient])

    # ---------------------------------------------------------------------------- collectives

    def _wrap_collectives(self) -> None:
        """Replace torch's functions before any other module of the program imports them."""
        for name in (*_COLLECTIVES, *_OF_OBJECTS):
            function = getattr(c10d, name, None)
            if function is not None:
                wrapped = self._collective(name, function)
                for module in (c10d, dist):
                    if hasattr(module, name):
                        setattr(module, name, wrapped)

    def _collective(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        signature, written = inspect.signature(function), _COLLECTIVES.get(name, "")

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in _OF_OBJECTS:
                with self._unwatched():
                    return function(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            group = given.get("group") or c10d.GroupMember.WORLD
            # Coalesced calls begin later, and a rank outside of the group takes no part.
            member = isinstance(group, dist.ProcessGroup) and group not in c10d._world.pg_coalesce_state
            if not self.recording or not member:
                return function(*args, **kwargs)
            ranks, rank = dist.get_process_group_ranks(group), dist.get_rank()
            root = given.get("dst" if name in ("reduce", "gather") else "src", rank)
            if root is None:  # given by its number in the group
                root = ranks[given.get("group_dst", given.get("group_src", 0))]
            self._forget()
            unread = "" if name == "broadcast" and rank == root else written
            inputs = self.numbers([value for key, value in given.items() if key != unread])
            with self._unwatched():
                work = function(*args, **kwargs)
            if isinstance(work, dist.Work):
                work.wait()
            self._forget()
            receives = name not in ("send", "reduce", "gather") or (name != "send" and rank == root)
            results = self.numbers(given.get(written or "tensor")) if receives else []
            # FSDP divides after a sum on a backend that has no average: those are two computations, not one.
            op = given.get("op", dist.ReduceOp.SUM)
            reduction = str(getattr(op, "op", op)).rpartition(".")[2]
            shown = name if reduction == "SUM" else f"{name} {reduction}"
            self.event(COLLECTIVE, f"ranks {', '.join(map(str, ranks))}", shown, inputs, results)
            return work

        return call

    # ----------------------------------------------------------------------------- operations

    def operation(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation and record it."""
        backward = torch._C._current_graph_task_id() != -1
        modules = self._thread.open
        where = self._backward_in if backward else modules[-1][0] if modules else "program"
        phase, name = (BACKWARD if backward else FORWARD), str(function)
        if not self._wanted(where, name):
            return function(*args, **kwargs)
        self._capture(phase, where, name, args, kwargs)
        written = [
            kwargs.get(argument.name, args[n] if n < len(args) else None)
            for n, argument in enumerate(function._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        unread = {id(tensor) for tensor in tree_leaves(written)} if _overwrites(function) else set()
        inputs = self.numbers([value for value in tree_leaves([args, kwargs]) if id(value) not in unread])
        results = function(*args, **kwargs)
        self.event(phase, where, name, inputs, self.numbers([results, written]))
        return results

    def _capture(self, phase: str, where: str, name: str, args: Any, kwargs: Any) -> None:
        wanted, same = self._options.capture, (self._step, phase, where, name)
        if wanted is None or same != wanted[:4]:
            return
        self._counts[same] = self._counts.get(same, -1) + 1
        if Key(*same, self._counts[same]) == wanted:
            with self._own_work():
                rank = self._writer.rank if self._writer else 0
                inputs = (name, _on_cpu(args), _on_cpu(kwargs))
                torch.save(inputs, Path(self._options.folder, f"rank{rank}.pt"))


#: Argument that a collective writes without reading it, but for the root of a broadcast. "": all are read.
_COLLECTIVES = {
    "all_reduce": "", "all_gather": "tensor_list", "all_gather_into_tensor": "output_tensor",
    "all_gather_single": "output_tensor", "all_to_all": "output_tensor_list", "all_to_all_single": "output",
    "broadcast": "tensor", "gather": "gather_list", "recv": "tensor", "reduce": "", "reduce_scatter": "output",
    "reduce_scatter_single": "output", "reduce_scatter_tensor": "output", "scatter": "tensor", "send": "",
    "_all_gather_base": "output_tensor", "_reduce_scatter_base": "output",
}  # fmt: skip
#: Not recorded: objects are pickled, and their bytes differ from process to process.
_OF_OBJECTS = (
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
)  # fmt: skip


class _Operations(TorchDispatchMode):
    """Records every operation below autograd; memory that is only allocated is zero, to be the same in two runs."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._recorder.watches_operations or not _computes(func):
            results = func(*args, **(kwargs or {}))
            return results.zero_() if _allocates(func) and self._recorder.active else results
        return self._recorder.operation(func, args, kwargs or {})


@functools.cache
def _computes(function: Any) -> bool:
    """Return whether an operation's results are computed: a view has none, and empty memory has any."""
    schema = getattr(function, "_schema", None)
    if schema is None:  # an operator of operators, whose parts are recorded
        return False
    views = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
    return not views and "empty" not in schema.name


@functools.cache
def _allocates(function: Any) -> bool:
    """Return whether an operation returns memory that nothing has written."""
    return str(function).partition(".")[0] == "aten" and str(function).split(".")[1] in _ALLOCATING


_ALLOCATING = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_FILLS = ("copy_", "fill_", "zero_", "set_", *(name.partition(".")[0] for name in draws.IN_PLACE))


@functools.cache
def _overwrites(function: Any) -> bool:
    """Return whether an operation writes its result without reading what was there."""
    schema = function._schema
    return schema.name.partition("::")[2] in _FILLS or any(argument.is_out for argument in schema.arguments)


def _is_readable(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type != "meta"
        and value.numel() > 0
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def _device() -> str:
    """Return the type of the device that the program has: `cpu` without one."""
    current = torch.accelerator.current_accelerator(check_available=True)
    return "cpu" if current is None else current.type


def _on_cpu(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().cpu().clone(), values)
