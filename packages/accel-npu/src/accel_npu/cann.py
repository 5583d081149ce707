# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Location and version of CANN, Ascend's toolkit."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

HOME_VARIABLE = "ASCEND_HOME_PATH"
_VERSION = re.compile(r"^\s*version\s*=\s*(\S+)", re.MULTILINE)


class Cann(NamedTuple):
    """The version of the toolkit, None if unknown, and the reason."""

    version: str | None
    reason: str


def installed() -> Cann:
    """Read the version from `ascend_*_install.info` under ASCEND_HOME_PATH. Does not raise."""
    home = os.environ.get(HOME_VARIABLE)
    if not home:
        return Cann(None, f"{HOME_VARIABLE} is not set: source CANN's set_env.sh")
    if not Path(home).is_dir():
        return Cann(None, f"{HOME_VARIABLE}={home} is not a folder: source CANN's set_env.sh again")
    for info in sorted(Path(home).rglob("ascend_*_install.info")):
        try:
            found = _VERSION.search(info.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if found:
            return Cann(found.group(1), f"CANN {found.group(1)} in {home}")
    return Cann(None, f"no ascend_*_install.info with a version below {HOME_VARIABLE}={home}")
