# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The package that declares an entry point. Imports little, because `accel --help` imports it."""

from __future__ import annotations

import importlib.metadata


def declaring_package(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Return name and version of the package that declares an entry point."""
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else (point.value.partition(".")[0], "")
