# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""For each accelerator class, the calls of its device module that it inherits, as a program for mypy.

A runtime may lack a name that core's methods ask for where its accelerator overrides the method. No annotation can
say that, so mypy is given what is left: with the module's stub it sees whether each of these calls is possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ci import workspace
from ci.stubs import accelerators, surfaces
from ci.stubs.accelerators import Accelerator, Call
from ci.stubs.text import HEADER

FOLDER = Path("inherited_calls")
_TEXT = '''\
"""What {name} asks of {module}: mypy checks it, nothing runs it."""

from typing import Any

import {module} as module


def calls(_: Any) -> None:
{calls}
'''


def files(root: Path) -> dict[Path, str]:
    """A file for each accelerator class of the checkout's vendor packages."""
    packages = workspace.load(root)
    core = root / packages[workspace.CORE].source
    found = {}
    for package in packages.values():
        if package.vendors:
            for accelerator in accelerators.find(root / package.source, core):
                name = accelerator.name.rpartition(".")[0].removesuffix(".accelerator").replace(".", "_")
                found[FOLDER / f"{name}.py"] = HEADER + _text(accelerator)
    return found


def _text(accelerator: Accelerator) -> str:
    calls = "\n".join(f"    {line}" for line in sorted(set(_lines(accelerator.calls))))
    module = surfaces.REGISTERED.get(accelerator.device_module, accelerator.device_module)
    return _TEXT.format(name=accelerator.name, module=module, calls=calls)


def _lines(calls: list[Call]) -> Iterator[str]:
    for call in calls:
        if call.arguments is None:
            yield f"module.{call.name}"
        else:
            words = (word if word == "_" else f"{word}=_" for word in call.arguments)
            yield f"module.{call.name}({', '.join(words)})"
