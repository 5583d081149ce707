# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Copies docs/errors.md of the workspace into the package; an unpacked sdist has it already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SharedHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the page, except to an editable install, which reads it from the workspace."""
        page = Path(self.root).parents[1] / "docs/errors.md"
        if version != "editable" and page.is_file():
            inside = "src/accel_core" if self.target_name == "sdist" else "accel_core"
            build_data["force_include"][str(page)] = f"{inside}/errors.md"
