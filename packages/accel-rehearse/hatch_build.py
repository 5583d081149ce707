# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""With ACCEL_REHEARSE_LIBRARIES=FOLDER the wheel is for this Python and platform, and has the libraries in that folder.

`python -m accel_rehearse.native FOLDER` adds the one for the torch that is installed.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class LibrariesHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before each build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries."""
        libraries = os.environ.get("ACCEL_REHEARSE_LIBRARIES")
        if libraries and self.target_name == "wheel" and version != "editable":
            build_data["force_include"][libraries] = "accel_rehearse/prebuilt"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
