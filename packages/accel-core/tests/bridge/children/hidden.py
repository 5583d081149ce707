# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Import before everything else: a machine without one of the packages that this environment has."""

import importlib.metadata
from collections.abc import Iterator
from typing import Any


def distribution(name: str) -> None:
    """Let importlib.metadata find no distribution of that name, nor its entry points."""
    all_of_them = importlib.metadata.distributions

    def without(**context: Any) -> Iterator[importlib.metadata.Distribution]:
        return (found for found in all_of_them(**context) if found.name != name)

    importlib.metadata.distributions = without  # type: ignore[assignment]
