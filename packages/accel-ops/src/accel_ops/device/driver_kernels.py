# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Kernels that a device's driver loads: what goes wrong with them, the files of a wheel, how one is started."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from accel_core.errors import AccelError
from accel_ops.op import Unusable

_log = logging.getLogger("accel_core")


class KernelsUnusable(Unusable):
    """Kernels cannot be loaded or started; the text is the reason to use another implementation."""


class KernelNotStarted(AccelError, RuntimeError, code="ACC-530"):
    """The driver refuses to start a kernel that was loaded."""


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


#: launch(kernel, blocks, threads of a block, values in the order of the kernel's arguments), as of `routes.Kernels`.
Launch = Callable[[str, int, int, tuple[Any, ...]], None]
#: lack(tensor): why the device's kernels cannot be used for it at the moment; empty if they can.
Lack = Callable[[torch.Tensor], str]


@cache
def log_fallback(what: str, lack: str) -> None:
    """Log why plain torch computes in place of kernels, each reason once. Do nothing if `lack` is empty."""
    if lack:
        _log.info("%s: plain torch for some tensors: %s", what, lack)
