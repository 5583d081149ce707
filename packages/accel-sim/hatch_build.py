# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts folders of the workspace into the package; an unpacked sdist has them already.

With ACCEL_SIM_LIBRARIES=FOLDER the wheel is for this Python and platform, and has the libraries in that folder:
`python -m accel_sim.build FOLDER` adds the one for the torch that is installed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("shared/surfaces", "shared/csrc")
#: The emulated CANN, without its tests. Nothing here has the name of a file of CANN's.
CANN = ("__init__.py", "build.py", "operators.py", "operators.txt", "csrc")


class SharedHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add libraries and folders, the latter except to an editable install, which reads them from the workspace."""
        libraries = os.environ.get("ACCEL_SIM_LIBRARIES")
        if libraries and self.target_name == "wheel" and version != "editable":
            build_data["force_include"][libraries] = "accel_sim/prebuilt"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        workspace = Path(self.root).parents[1]
        if version == "editable" or not (workspace / "shared").is_dir():
            return
        data = "src/accel_sim/data" if self.target_name == "sdist" else "accel_sim/data"
        for folder in FOLDERS:
            build_data["force_include"][str(workspace / folder)] = f"{data}/{Path(folder).name}"
        for name in CANN:
            build_data["force_include"][str(workspace / "tests/runtimes/cann" / name)] = f"{data}/cann/{name}"
