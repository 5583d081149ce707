# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builder names of the current accelerator's op table, as names of this module (PEP 562)."""

from __future__ import annotations

from accel_core import get_accelerator


def __dir__() -> list[str]:
    return list(getattr(get_accelerator(), "op_table", ()))
