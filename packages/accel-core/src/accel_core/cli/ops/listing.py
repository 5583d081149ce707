# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builders of an accelerator: DeepSpeed's names, and those of its package's own op table."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from accel_core.cli.ops import tables
from accel_core.cli.ops.rows import MISSING, SERVED, Row
from accel_core.errors import UnknownBuilder
from accel_core.op_builder.names import UPSTREAM


def listed(accelerator: Any, names: Sequence[str]) -> list[Row]:
    """Return a row for each builder in `names`, or for all if it is empty. Compiles nothing.

    Raises UnknownBuilder.
    """
    known = (*UPSTREAM, *sorted(tables.table_in(accelerator.op_builder_dir()).keys() - set(UPSTREAM)))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _unknown(unknown, known, accelerator.device_name())
    return [_row(accelerator, name) for name in known if name in names or not names]


def _row(accelerator: Any, name: str) -> Row:
    builder = accelerator.create_op_builder(name)
    served = bool(builder is not None and builder.is_compatible())
    # The builders of DeepSpeed's own accelerators have an error log instead of a reason.
    reason = getattr(builder, "reason", "") or getattr(builder, "error_log", None) or ""
    return Row(name, getattr(builder, "name", ""), SERVED if served else MISSING, reason)


def _unknown(names: Sequence[str], known: Sequence[str], device: str) -> UnknownBuilder:
    near, facts = [], []
    for name in names:
        near += [match for match in _near(name, known) if match not in near]
        packages = tables.packages_with(name)
        facts.append(f"{name!r}" + (f" ({tables.sentence(packages)})" if packages else ""))
    return UnknownBuilder(
        what=f"{device} has no such op builder",
        found="; ".join(facts),
        expected=f"a builder such as {', '.join(near)}" if near else "the name of a builder class",
        do="`accel ops list` shows all of them",
    )


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Return builders with a similar name. The name of an op (`cpu_adam`) finds its builder, too."""
    plain = {_plain(candidate): candidate for candidate in known}
    return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3)]


def _plain(name: str) -> str:
    return name.lower().replace("_", "").removesuffix("builder")
