# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Location and version of CANN, Ascend's toolkit."""

from __future__ import annotations

import os
import re
from pathlib import Path

HOME_VARIABLE = "ASCEND_HOME_PATH"
_VERSION = re.compile(r"^\s*version\s*=\s*(\S+)", re.MULTILINE)


def cann_status() -> str:
    """Return the version in `ascend_*_install.info` under ASCEND_HOME_PATH, or what is missing. Does not raise."""
    home = os.environ.get(HOME_VARIABLE)
    if not home:
        return f"{HOME_VARIABLE} is not set: source CANN's set_env.sh"
    if not Path(home).is_dir():
        return f"{HOME_VARIABLE}={home} is not a folder: source CANN's set_env.sh again"
    if missing := _missing_part(Path(home)):
        return f"{missing}, without which torch_npu's import fails: source CANN's set_env.sh, or install CANN again"
    for info in sorted(Path(home).rglob("ascend_*_install.info")):
        try:
            found = _VERSION.search(info.read_text(encoding="utf-8"))
        except (OSError, UnicodeError):
            continue
        if found:
            return f"CANN {found.group(1)} in {home}"
    return f"no ascend_*_install.info with a version below {HOME_VARIABLE}={home}"


def _missing_part(home: Path) -> str:
    """Return what torch_npu's import looks for and does not find; empty if it finds all."""
    operators = os.environ.get("ASCEND_OPP_PATH")
    if operators is None:
        return "ASCEND_OPP_PATH is not set"
    parts = (Path(operators), home / "runtime", home / "compiler")
    return next((f"there is no folder {part}" for part in parts if not part.exists()), "")
