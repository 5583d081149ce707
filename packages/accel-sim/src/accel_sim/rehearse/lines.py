# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whose lines are whose: the program's own, those of installed packages, those of torch and of the simulator."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from functools import cache
from pathlib import Path

from accel_sim import settings

_INSTALLED = re.compile(r"/(site|dist)-packages/")


@cache
def internal() -> list[str]:
    """Return the folders whose lines no report shows."""
    import torch

    import accel_core
    import accel_sim

    return [f"{Path(str(module.__file__)).parent}{os.sep}" for module in (torch, accel_sim, accel_core)]


@cache
def libraries() -> list[str]:
    """Return where code that is not the program's own is, beside what is installed with pip (`_INSTALLED`)."""
    own = (importlib.util.find_spec(f"accel_{name}") for name in ("ops", "cpu", settings.DEVICE.get()))
    folders = [
        sysconfig.get_paths()["stdlib"],
        *(Path(spec.origin).parent for spec in own if spec and spec.origin),
    ]
    return [f"{folder}{os.sep}" for folder in folders]


@cache
def is_program(file: str) -> bool:
    """Return whether a file is the program's own."""
    return not file.startswith(("<", *internal(), *libraries())) and not _INSTALLED.search(file)


def short(source: str) -> str:
    """Return a line without the folders that say nothing."""
    path = re.sub(r"^.*/(site-packages|lib/python[\d.]+|src(?=/accel_))/", "", source)
    for folder in (f"{Path(sys.argv[0]).resolve().parent}{os.sep}", f"{Path.cwd()}{os.sep}"):
        path = path.removeprefix(folder)
    return path
