# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels that a device's driver loads: what goes wrong with them, the files of a wheel, how one is started."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from accel_core.errors import AccelError
from accel_ops.op import Unusable

_T = TypeVar("_T")
_log = logging.getLogger("accel_core")


class KernelsUnusable(Unusable):
    """Kernels cannot be loaded or started; the text is the reason to use another implementation."""


class KernelNotStarted(AccelError, RuntimeError, code="ACC-530"):
    """The driver refuses to start a kernel that was loaded."""


class MemoizedLoader(Generic[_T]):
    """A function that is called once a process for the same arguments: a `KernelsUnusable` is kept, too.

    For what takes seconds (a driver compiles kernels when they are tried), and finds the same each time.
    """

    def __init__(self, function: Callable[..., _T]) -> None:
        self._function, self._lock = function, threading.Lock()
        self._found: dict[tuple[Hashable, ...], tuple[_T | None, str]] = {}

    def __call__(self, *arguments: Hashable) -> _T:
        """Return the function's result for these arguments. Raises `KernelsUnusable` with its reason."""
        with self._lock:
            if arguments not in self._found:
                try:
                    self._found[arguments] = self._function(*arguments), ""
                except KernelsUnusable as error:
                    self._found[arguments] = None, str(error)
            result, lack = self._found[arguments]
        if result is None:
            raise KernelsUnusable(lack)
        return result

    def forget(self) -> None:
        """Call the function again from now on."""
        self._found.clear()


def packaged_table(path: Path, key: str, what: str) -> Any:
    """Return what a table of packaged files (JSON) has for a key.

    what: the files in words, for reasons (`images`). Raises `KernelsUnusable`.
    """
    try:
        return json.loads(path.read_text("utf-8"))[key]
    except FileNotFoundError:
        raise KernelsUnusable(f"no {what} in this install") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KernelsUnusable(f"the table of {what} cannot be read: {error}") from error


def packaged_file(folder: Path, entry: Mapping[str, str], name: str) -> bytes:
    """Return the contents of a packaged file, which have the hash that the build wrote into its table.

    entry: of the table, with `file` and `sha256`. name: in words, for reasons. Raises `KernelsUnusable`.
    """
    try:
        content = (folder / entry["file"]).read_bytes()
    except (OSError, KeyError, TypeError) as error:
        raise KernelsUnusable(f"{name} cannot be read: {error}") from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise KernelsUnusable(f"{name} is damaged or of another build")
    return content


#: launch(kernel, blocks, threads of a block, values in the order of the kernel's arguments). The kernel starts on the
#: current stream of the first value's device.
Launch = Callable[[str, int, int, tuple[Any, ...]], None]
#: lack(tensor): why the device's kernels cannot be used for it at the moment; empty if they can.
Lack = Callable[[torch.Tensor], str]


class FallbackLog:
    """Logs why plain torch computes instead of kernels, each reason once. `what` is the op in words."""

    def __init__(self, what: str) -> None:
        self._what, self._logged = what, {""}

    def __call__(self, lack: str) -> None:
        """Log a reason; an empty one is none."""
        if lack not in self._logged:
            self._logged.add(lack)
            _log.info("%s: plain torch for some tensors: %s", self._what, lack)
