# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which package declares an entry point. Loads nothing else: `accel --help` needs it."""

from __future__ import annotations

import importlib.metadata


def declaring_package(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    """Name and version of the package that declares an entry point."""
    dist = point.dist
    return (dist.name, dist.version) if dist is not None else (point.value.partition(".")[0], "")
