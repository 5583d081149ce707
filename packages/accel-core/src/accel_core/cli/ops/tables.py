# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op tables of the installed vendor packages, to find those that have a builder. Imports no runtime."""

from __future__ import annotations

import dataclasses
import pkgutil

from accel_core.cli.ops.rows import MISSING, Row
from accel_core.op_builder.table import OpTable
from accel_core.selection.candidates import discover


def table_in(package: str) -> OpTable:
    """Return `TABLE` of an op builder package; an empty table if it has none or cannot be imported."""
    try:
        table = pkgutil.resolve_name(f"{package}:TABLE")
    except (Exception, SystemExit):
        table = None
    return table if isinstance(table, OpTable) else OpTable(package, {})


def packages_with(builder: str) -> dict[str, str]:
    """Return the packages whose op table has the builder, each with the key of its accelerator.

    The table is `TABLE` of `op_builder` in the package of the accelerator class, as in the template of vendor packages.
    """
    found: dict[str, str] = {}
    for vendor in discover().vendors:
        package = vendor.accelerator.partition(":")[0].partition(".")[0]
        if builder in table_in(f"{package}.op_builder"):
            found.setdefault(vendor.distribution, vendor.key)
    return dict(sorted(found.items()))


def with_packages(row: Row) -> Row:
    """Add to a missing row the packages that have the op for another accelerator."""
    packages = packages_with(row.builder) if row.state == MISSING else {}
    if not packages:
        return row
    return dataclasses.replace(row, reason=f"{row.reason}; {sentence(packages)}")


def sentence(packages: dict[str, str]) -> str:
    """Return a sentence with the packages and the accelerator of each."""
    return " and ".join(f"{package} has it for {key}" for package, key in packages.items())
