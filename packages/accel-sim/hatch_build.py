# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts folders of the workspace's shared/ into the package; an unpacked sdist has them already.

With ACCEL_SIM_LIBRARIES=FOLDER the wheel is for this Python and platform, and has the libraries in that folder:
`python -m accel_sim.build FOLDER` adds the one for the torch that is installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("surfaces", "csrc")


class SharedHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add libraries and folders, the latter except to an editable install, which reads them from the workspace."""
        libraries = os.environ.get("ACCEL_SIM_LIBRARIES")
        if libraries and self.target_name == "wheel" and version != "editable":
            build_data["force_include"][libraries] = "accel_sim/prebuilt"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        shared = Path(self.root).parents[1] / "shared"
        if version == "editable" or not shared.is_dir():
            return
        inside = "src/accel_sim" if self.target_name == "sdist" else "accel_sim"
        for name in FOLDERS:
            build_data["force_include"][str(shared / name)] = f"{inside}/data/{name}"
