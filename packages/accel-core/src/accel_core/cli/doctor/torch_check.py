# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Does `import torch` work here, and if not, whose fault is it? Asked in children."""

from __future__ import annotations

import re
from dataclasses import dataclass

from accel_core.cli import child
from accel_core.cli.packages import AUTOLOAD, autoload_on, backend_owner
from accel_core.vendor import distribution_version, module_exists

_MODULE = "accel_core.cli.doctor.import_torch"
_TORCH_SAYS = re.compile(r"Failed to load the backend extension: (\S+?)\. ")


@dataclass(frozen=True)
class Torch:
    """The installed torch.

    version:         empty when it is not installed.
    imports:         `import torch` works in this environment.
    without_vendors: it works with TORCH_DEVICE_BACKEND_AUTOLOAD=0.
    reason:          why it does not work, in one line.
    culprit:         the backend extension (entry point) that breaks the import, with its package and version.
    claimed:         who holds torch's PrivateUse1 slot once torch is imported.
    error:           the traceback.
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


def examine(seconds: float) -> Torch:
    """Import torch in a child; when that fails, once more without the vendors' extensions, to find the one."""
    if not module_exists("torch"):
        return Torch(reason="it is not installed")
    installed = distribution_version("torch") or "unknown"
    plain = child.ask(_MODULE, seconds=seconds)
    reason = plain.failure or plain.answer["reason"]
    if not reason:
        return Torch(plain.answer["version"], True, True, claimed=plain.answer["claimed"])
    error = plain.answer.get("error") or plain.output
    if not autoload_on():
        return Torch(installed, reason=reason, error=error)
    bare = child.ask(_MODULE, "--each", seconds=seconds, **{AUTOLOAD: "0"})
    works = bool(bare.answer.get("version"))
    said = _TORCH_SAYS.search(error)
    culprit = (bare.answer.get("culprit") or (said.group(1) if said else "")) if works else ""
    package, version = backend_owner(culprit) if culprit else ("", "")
    return Torch(installed, False, works, reason, culprit, package, version, error=error)
