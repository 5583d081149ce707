# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether `import torch` works here, and if not, which package makes it fail. Runs in child processes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from accel_core.cli.child import Reply
from accel_core.cli.packages import AUTOLOAD, TORCH_GROUP, autoload_on, backend_package
from accel_core.cli.worker import Worker
from accel_core.upstream.contract import TRIED_TORCH
from accel_core.vendor import distribution_version, in_range

STEPS = "accel_core.cli.doctor.steps"
_TORCH_SAYS = re.compile(r"Failed to load the backend extension: (\S+?)\. ")


@dataclass(frozen=True)
class Torch:
    """The installed torch.

    version:         empty when it is not installed.
    imports:         `import torch` works in this environment.
    without_vendors: it works with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
    reason:          why it does not work, in one line.
    culprit:         the backend extension (entry point) that breaks the import, with its package and version.
    claimed:         the backend that holds torch's PrivateUse1 slot after the import.
    error:           the traceback.
    shadow:          a file or folder called torch that is imported in its place.
    tried:           training with DeepSpeed was tested with this release.
    """

    version: str = ""
    imports: bool = False
    without_vendors: bool = False
    reason: str = ""
    culprit: str = ""
    culprit_package: str = ""
    culprit_version: str = ""
    claimed: str = ""
    error: str = ""
    shadow: str = ""
    tried: bool = True


def examine(plain: Reply, seconds: float) -> Torch:
    """Return the state of torch, given the reply of the child that imported it.

    If that failed, another child imports torch without backend extensions and calls each of them, to find the
    one that fails.
    """
    installed = distribution_version("torch") or "unknown"
    reason = plain.failure or plain.answer["reason"]
    if not reason:
        version = plain.answer["version"]
        tried = in_range(version, str(TRIED_TORCH))
        return Torch(version, True, True, claimed=plain.answer["claimed"], tried=tried)
    error = plain.answer.get("error") or plain.output
    if shadow := _shadow():
        return Torch(installed, reason=reason, error=error, shadow=shadow)
    if not autoload_on():
        return Torch(installed, reason=reason, error=error)
    works, culprit = _culprit(seconds)
    if works and not culprit:
        said = _TORCH_SAYS.search(error)
        culprit = said.group(1) if said else ""
    package, version = backend_package(culprit) if culprit else ("", "")
    return Torch(installed, False, works, reason, culprit, package, version, error=error)


def _shadow() -> str:
    """Return what `import torch` finds in place of PyTorch, such as a folder left in the working directory."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return ""
    if spec.origin is None:  # a folder without __init__.py
        return next(iter(spec.submodule_search_locations or ()), "")
    place = Path(spec.origin)
    place = place.parent if place.name == "__init__.py" else place
    return str(place) if place.parent == Path.cwd() else ""


def _culprit(seconds: float) -> tuple[bool, str]:
    """Whether torch can be imported without extensions, and the first extension whose call fails."""
    worker = Worker(STEPS, **{AUTOLOAD: "0"})
    try:
        if not worker.ask(seconds, "torch").answer.get("version"):
            return False, ""
        for point in importlib.metadata.entry_points(group=TORCH_GROUP):
            reply = worker.ask(seconds, "extension", point.name)
            if reply.failure or reply.answer["reason"]:
                return True, point.name
        return True, ""
    finally:
        worker.close()
