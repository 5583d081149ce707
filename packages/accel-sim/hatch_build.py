# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts folders of the workspace's shared/ into the package; an unpacked sdist has them already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("surfaces", "csrc")


class SharedHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders, except to an editable install, which reads them from the workspace."""
        shared = Path(self.root).parents[1] / "shared"
        if version == "editable" or not shared.is_dir():
            return
        inside = "src/accel_sim" if self.target_name == "sdist" else "accel_sim"
        for name in FOLDERS:
            build_data["force_include"][str(shared / name)] = f"{inside}/data/{name}"
