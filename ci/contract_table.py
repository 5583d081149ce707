# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The page of the contract: every method of the interface, every property of it, and the checks that hold it.

python -m ci.contract_table write    write docs/results/contract.md from accel_testkit.suite.contract

Why: a method or a property without a check has to be seen, and to have a reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from accel_testkit.suite import contract

PAGE = Path("docs/results/contract.md")
_HEAD = """# Contract

Every method of the interface, and the checks of the conformance suite for each of its properties; where there is
no check, the reason in words. Made by `python -m ci.contract_table write` from `accel_testkit.suite.contract`; do not
edit. Tests fail for a method without a row, an empty cell, a check that does not exist, and a check that no broken
accelerator has shown to fail, for one method at least. `[]` stands for the method's own name. What each accelerator
passes: [conformance](conformance.md).

"""


def page() -> str:
    """Return the page's text."""
    return _HEAD + "\n".join((*_properties(), "", *_rows())) + "\n"


def _properties() -> Iterator[str]:
    yield "| property | what it means |"
    yield "| --- | --- |"
    for name, meaning in contract.PROPERTIES.items():
        yield f"| {name} | {meaning} |"


def _rows() -> Iterator[str]:
    yield f"| method | {' | '.join(contract.PROPERTIES)} |"
    yield f"| --- |{' --- |' * len(contract.PROPERTIES)}"
    for name, cells in contract.table():
        texts = [_text(name, cells[column]) for column in contract.PROPERTIES]
        yield f"| `{name}` | {' | '.join(texts)} |"


def _text(name: str, cell: contract.Cell) -> str:
    if cell.reason:
        return f"none: {cell.reason}"
    return ", ".join(f"`{check.replace(f'[{name}]', '[]')}`" for check in cell.checks)


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m ci.contract_table", description="The contract's page.")
    parser.add_argument("action", choices=["write"])
    parser.parse_args(arguments)
    file = (root or Path.cwd()) / PAGE
    file.write_text(page(), encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
