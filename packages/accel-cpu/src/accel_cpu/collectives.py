# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which backend torch.distributed uses between CPU processes: oneCCL's where it works, gloo otherwise."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from importlib import metadata
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

_MODULE = "oneccl_bindings_for_pytorch"
_DISTRIBUTION = "oneccl_bind_pt"


class Collectives(NamedTuple):
    """The name for `torch.distributed.init_process_group`, and the sentence why."""

    backend: str
    reason: str


@functools.cache
def choose() -> Collectives:
    """`ccl` if oneCCL's bindings import, are built for this torch and register it; else `gloo`. Never raises.

    The bindings are imported here, at the first call, and the answer is kept for the life of the process.
    """
    fault = _fault()
    if fault is None:
        return Collectives("ccl", f"{_MODULE} is installed and serves this torch")
    return Collectives("gloo", fault)


def _fault() -> str | None:
    """Why oneCCL's bindings can not be used; None if they can."""
    try:
        if importlib.util.find_spec(_MODULE) is None:
            return f"{_MODULE} is not installed"
        # Asked before the import: native code built for another torch may end the process.
        if mismatch := _mismatch(_installed_version()):
            return mismatch
        bindings = importlib.import_module(_MODULE)
        if mismatch := _mismatch(getattr(bindings, "__version__", None)):
            return mismatch
    except (Exception, SystemExit) as error:
        return f"{_MODULE} fails to import: {type(error).__name__}: {error}"
    return None if _registered() else f"{_MODULE} is imported but registers no backend named ccl"


def _installed_version() -> str | None:
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def _mismatch(version: str | None) -> str | None:
    if version is None:
        return None
    import torch

    try:
        same = Version(version).release[:2] == Version(torch.__version__).release[:2]
    except InvalidVersion as error:
        return f"{_MODULE} has no readable version: {error}"
    return None if same else f"{_MODULE} {version} is built for another torch than {torch.__version__}"


def _registered() -> bool:
    import torch.distributed

    return torch.distributed.is_available() and torch.distributed.is_backend_available("ccl")
