# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts the workspace's docs and shared/template into the package; an unpacked sdist has them already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SharedHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them, except to an editable install, which reads them from the workspace."""
        shared = Path(self.root).parents[1] / "shared"
        if version == "editable" or not shared.is_dir():
            return
        inside = "src/accel_testkit" if self.target_name == "sdist" else "accel_testkit"
        build_data["force_include"][str(shared / "template")] = f"{inside}/template"
        for page in shared.with_name("docs").glob("*.md"):
            build_data["force_include"][str(page)] = f"{inside}/docs/{page.name}"
