# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts the workspace's shared/surfaces into the package; an unpacked sdist has them in place already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SurfacesHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the surfaces, except to an editable install, which reads them from the workspace."""
        surfaces = Path(self.root).parents[1] / "shared" / "surfaces"
        if version == "editable" or not surfaces.is_dir():
            return
        inside = "src/accel_testkit" if self.target_name == "sdist" else "accel_testkit"
        build_data["force_include"][str(surfaces)] = f"{inside}/surfaces"
