# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Changes of a rehearsal in a program, and notes of what it cannot follow.

Process groups have one rank here, and DeepSpeed's engine and host kernels are hooked. Whose lines are whose: the
program's own, those of installed packages, those of torch and of the simulator.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from wrapt import register_post_import_hook

import accel_core
import accel_sim
from accel_rehearse.phases import BACKWARD, CHECKPOINT, FORWARD, INIT, STEP, Phases, tensors
from accel_sim import activation, settings
from accel_sim.ops import hpu
from accel_sim.ops import steps as fused_steps
from accel_sim.simulation import Simulation

# ------------------------------------------------------------------------------------------------ lines
_INSTALLED = re.compile(r"/(site|dist)-packages/")


@cache
def internal() -> list[str]:
    """Return how the files begin whose lines no report shows: torch, the simulation, and what is in no file."""
    files = (__file__, *(str(module.__file__) for module in (torch, accel_sim, accel_core)))
    return ["<", *(f"{Path(file).parent}{os.sep}" for file in files)]


@cache
def libraries() -> list[str]:
    """Return where code that is not the program's own is, in addition to what is installed with pip (`_INSTALLED`)."""
    own = (importlib.util.find_spec(f"accel_{name}") for name in ("ops", "cpu", settings.DEVICE.get()))
    folders = [
        sysconfig.get_paths()["stdlib"],
        *(Path(spec.origin).parent for spec in own if spec and spec.origin),
    ]
    return [f"{folder}{os.sep}" for folder in folders]


@cache
def is_program(file: str) -> bool:
    """Return whether a file is the program's own."""
    return not file.startswith((*internal(), *libraries())) and not _INSTALLED.search(file)


def short(source: str) -> str:
    """Return a line without the folders that say nothing."""
    path = re.sub(r"^.*/(site-packages|lib/python[\d.]+|src(?=/accel_))/", "", source)
    for folder in (f"{Path(sys.argv[0]).resolve().parent}{os.sep}", f"{Path.cwd()}{os.sep}"):
        path = path.removeprefix(folder)
    return path


#: Bytes that are really saved to a stream.
_SMALL = 1 << 20


class Watch:
    """Notes for the report, each once, in the order of the program. device: torch's type of the simulated device."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Add a note."""
        self.notes.setdefault(text)

    def install(self) -> None:
        """Change what cannot be rehearsed as it is, and watch the rest."""
        tensor: Any = torch.Tensor
        tensor.__bool__ = self._reading(tensor.__bool__, "decides by a result of the device")
        for name in ("item", "tolist", "__float__", "__int__", "__index__"):
            setattr(tensor, name, self._reading(getattr(tensor, name), "reads a result of the device"))
        vars(torch).update(compile=self.eager, save=self._saving(torch.save))
        module: Any = torch.nn.Module
        module.compile = self.eager
        process: Any = BaseProcess
        process.start = self._starting(process.start)
        register_post_import_hook(self._extensions, "torch.utils.cpp_extension")
        register_post_import_hook(self._safetensors, "safetensors.torch")
        sys.addaudithook(self._heard)

    def _at(self) -> str:
        """Return ` at LINE` if the program's own code is what called, else nothing."""
        frame = sys._getframe(2)
        return (
            f" at {short(f'{frame.f_code.co_filename}:{frame.f_lineno}')}"
            if is_program(frame.f_code.co_filename)
            else ""
        )

    def _reading(self, stock: Callable[..., Any], what: str) -> Callable[..., Any]:
        @functools.wraps(stock)
        def read(tensor: torch.Tensor, *arguments: Any) -> Any:
            if tensor.device.type == self._device and (line := self._at()):
                self.note(f"the program {what}{line}: large results are zeros here")
            return stock(tensor, *arguments)

        return read

    # ------------------------------------------------------------------------------------- torch.compile
    def eager(self, model: Any = None, *_arguments: Any, **_options: Any) -> Any:
        """Return the model as it is. Libraries decorate functions that the program may never call: no note."""
        if self._at() or sys._getframe(1).f_code.co_name != "<module>":
            self.note("torch.compile: rehearsed eager; compiled code often needs less memory")
        return model if model is not None else lambda function: function

    def _extensions(self, module: ModuleType) -> None:
        for function in ("load", "load_inline"):
            vars(module)[function] = self._named(vars(module)[function])

    def _named(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def load(name: str, *arguments: Any, **options: Any) -> Any:
            if line := self._at():
                self.note(
                    f"the program compiles its own extension {name!r}{line}: what that allocates is not counted"
                )
            return stock(name, *arguments, **options)

        return load

    # --------------------------------------------------------------------------------------- checkpoints
    def _saving(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def save(obj: Any, f: Any, *arguments: Any, **options: Any) -> None:
            if isinstance(f, (str, os.PathLike)):
                self._sized(short(str(f)), obj)
            elif _bytes(obj) <= _SMALL:  # a part of a message, or of a pickle
                stock(obj, f, *arguments, **options)
            else:
                self._sized("a stream", obj)

        return save

    def _safetensors(self, module: ModuleType) -> None:
        vars(module)["save_file"] = lambda tensors, filename, *_arguments, **_options: self._sized(
            short(str(filename)), tensors
        )

    def _sized(self, name: str, value: Any) -> None:
        self.note(f"{name}: {_bytes(value) / 2**30:.3f} GiB, not written")

    # ----------------------------------------------------------------------------------------- processes
    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.fork"):
            self._started(arguments[0] if arguments else "a process")

    def _starting(self, stock: Callable[[BaseProcess], None]) -> Callable[[BaseProcess], None]:
        @functools.wraps(stock)
        def start(process: BaseProcess) -> None:
            self._started("a process")
            stock(process)

        return start

    def _started(self, what: str) -> None:
        lines = [(frame.f_code.co_filename, frame.f_lineno) for frame in _frames()]
        own = next((f"{file}:{number}" for file, number in lines if is_program(file)), "")
        if own and not any("/torch/utils/data/" in file for file, _ in lines):
            self.note(f"the program starts {what} at {short(own)}: that process is not rehearsed")


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _bytes(value: Any) -> int:
    """Return the bytes of all tensors in a value, each storage once."""
    storages = [tensor.untyped_storage() for tensor in tensors(value)]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


# ------------------------------------------------------------------------------------------------ groups
def replace_groups(simulation: Simulation, native: Any, rank: int, ranks: int) -> None:
    """Let torch.distributed make groups of `ranks` ranks, of which this process is one."""
    name = simulation.vendor.collectives

    def meet(_url: str, _timeout: Any = None, **_options: Any) -> Iterator[tuple[Any, int, int]]:
        store: Any = vars(dist)["HashStore"]
        yield store(), rank, ranks

    handlers = sys.modules["torch.distributed.rendezvous"].__dict__["_rendezvous_handlers"]
    for scheme in handlers:
        handlers[scheme] = meet
    distributed_c10d.__dict__["_store_based_barrier"] = lambda *_arguments, **_options: None
    make: Any = activation
    make._backend = lambda _simulation, _store, rank, size, _timeout: native.backend(rank, size, name)

    def gloo(_store: Any, rank: int, size: int, *_arguments: Any, **_options: Any) -> Any:
        return native.backend(rank, size, "gloo")

    # torch sets the ranks of a group there, on gloo's.
    backend: Any = vars(torch._C._distributed_c10d)["Backend"]
    backend.options = property(lambda _backend: SimpleNamespace())
    options = getattr(getattr(dist, "ProcessGroupGloo", None), "_Options", object)
    activation.replace_class("Gloo", gloo, _Options=options)


def members() -> dict[str, tuple[int, ...]]:
    """Return the global ranks of each group, by its name."""
    world: Any = distributed_c10d._world
    return {
        str(name): tuple(sorted(world.pg_group_ranks.get(group, {}), key=world.pg_group_ranks[group].get))
        for group, name in list(world.pg_names.items())
        if group in world.pg_group_ranks
    }


def group_name(ranks: tuple[int, ...], world: int) -> str:
    """Return how a report calls a group: `world`, `ranks 0-7`, `ranks 0, 8, … 56`."""
    if len(ranks) == world:
        return "world"
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]}-{ranks[-1]}"
    if len(ranks) > 4:
        return f"ranks {ranks[0]}, {ranks[1]}, … {ranks[-1]}"
    return f"ranks {', '.join(map(str, ranks))}" if ranks else "?"


def peers(channels: list[str], rank: int) -> tuple[int, ...]:
    """Return the global ranks that this one sent to, by the names of the channels in its record."""
    known, found = members(), set()
    for channel in channels:
        words = channel.split()
        if words[0] == "send" and words[1] in known:
            found.add(known[words[1]][int(words[5])])
    return tuple(sorted(found - {rank}))


def experts(rank: int) -> tuple[int, ...]:
    """Return the other global ranks among which DeepSpeed divides the experts that are here."""
    module = sys.modules.get("deepspeed.utils.groups")
    made: dict[str, Any] = getattr(module, "_EXPERT_PARALLEL_GROUP", None) or {}
    world: Any = distributed_c10d._world
    found = {each for group in made.values() for each in world.pg_group_ranks.get(group, ())}
    return tuple(sorted(found - {rank}))


# ------------------------------------------------------------------------------------------------ DeepSpeed
_FP16 = (
    "fp16 with a dynamic loss scale: a real run skips steps until it has found the scale, and allocates the states of"
    " the optimizer at the first step that it takes; here no step is skipped"
)


def hook_deepspeed(phases: Phases, watch: Watch) -> None:
    """Change DeepSpeed and our ops, once they are imported: phases, steps, host kernels, files."""
    for name, where in (("adam", fused_steps), ("sgd", fused_steps), ("_adamw", hpu)):
        vars(where)[name] = lambda *_arguments, **_options: None  # on the device they allocate nothing
    for module, change in (
        ("deepspeed.runtime.engine", functools.partial(_engine, phases, watch)),
        ("deepspeed.runtime.pipe.engine", functools.partial(_pipeline, phases)),
        ("accel_ops.optimizers.cpu_steps", _host_kernels),
        ("accel_ops.host.library", _library),
        ("accel_ops.io.builder", _files),
    ):
        register_post_import_hook(change, module)


def _engine(phases: Phases, watch: Watch, module: ModuleType) -> None:
    engine: Any = vars(module)["DeepSpeedEngine"]
    for name, phase in (("forward", FORWARD), ("backward", BACKWARD), ("step", STEP)):
        setattr(engine, name, phases.wrapped(getattr(engine, name), phase))
    engine.__init__ = _built(phases, watch, engine.__init__)
    engine._take_model_step = _stepped(phases, engine._take_model_step)
    engine.save_checkpoint = _saved(phases, engine.save_checkpoint)
    engine.compile = watch.eager


def _pipeline(phases: Phases, module: ModuleType) -> None:
    """End the program before a batch of which a stage would receive something."""
    engine: Any = vars(module)["PipelineEngine"]
    stock = engine.train_batch

    @functools.wraps(stock)
    def train_batch(*arguments: Any, **options: Any) -> Any:
        phases.end_after(phases.steps)
        return stock(*arguments, **options)

    engine.train_batch = train_batch


def _built(phases: Phases, watch: Watch, stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def init(engine: Any, /, *arguments: Any, **options: Any) -> None:
        with phases.inside(INIT):
            stock(engine, *arguments, **options)
            phases.engines.add(engine)
            if getattr(engine, "dynamic_loss_scale", lambda: False)() and engine.fp16_enabled():
                watch.note(_FP16)
            phases.learn(engine)

    return init


def _stepped(phases: Phases, stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def take_step(*arguments: Any, **options: Any) -> Any:
        with phases.inside(STEP):
            result = stock(*arguments, **options)
        phases.step_is_taken()
        return result

    return take_step


def _saved(phases: Phases, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `save_checkpoint` that leaves the file which names the latest checkpoint as it is."""
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def save(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.arguments["save_latest"] = False
        with phases.inside(CHECKPOINT):
            return stock(*bound.args, **bound.kwargs)

    return save


def _host_kernels(kernels: ModuleType) -> None:
    """Let the host's kernels touch no memory: it is not committed."""
    vars(kernels).update(
        _run=lambda *_arguments, **_options: None,
        sum_of_squares=lambda *_arguments, **_options: 0.0,
        copy_gradient=lambda *_arguments, **_options: 0.0,
    )


def _library(library: Any) -> None:
    library._module = lambda path: library.WithoutModule


def _files(module: ModuleType) -> None:
    """Let DeepSpeed's asynchronous files neither be written nor read: NVMe holds what fits there."""
    handle: Any = vars(module)["aio_handle"]

    def parallel(
        self: Any, _buffer: Any, _name: Any, _write: bool, _validate: bool, later: bool, *_: Any
    ) -> int:
        if not later:
            return 1
        self._pending.append(None)
        return 0

    def wait(self: Any) -> int:
        count = len(self._pending)
        self._pending.clear()
        return count

    handle._run = lambda *_arguments: None
    handle._parallel, handle.wait = parallel, wait
