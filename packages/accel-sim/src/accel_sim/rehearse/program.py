# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a program does that a rehearsal cannot follow: it is changed, or noted with its line."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from types import FrameType, ModuleType
from typing import Any

import torch
from wrapt import register_post_import_hook

from accel_sim.rehearse.lines import is_program, short
from accel_sim.rehearse.phases import Phases

#: Bytes that are really saved to a stream.
_SMALL = 1 << 20


class Watch:
    """Notes for the report, each once. device: torch's type of the simulated device."""

    def __init__(self, phases: Phases, device: str) -> None:
        self._phases, self._device = phases, device
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes in the order of the program."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Add a note."""
        self._notes.setdefault(text)

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
    storages: dict[int, int] = {}

    def visit(each: Any) -> None:
        if isinstance(each, torch.Tensor):
            local = getattr(each, "_local_tensor", each)
            storage = local.untyped_storage()
            storages[storage._cdata] = storage.nbytes()
        elif isinstance(each, dict):
            for item in each.values():
                visit(item)
        elif isinstance(each, (list, tuple)):
            for item in each:
                visit(item)

    visit(value)
    return sum(storages.values())
