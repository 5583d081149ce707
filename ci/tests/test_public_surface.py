# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ci import public_surface
from ci.tests.repository import HEADER, Repository

CORE = "packages/accel-core/src/accel_core"
VENDOR = '''"""Records. And more."""

from dataclasses import dataclass

from accel_core.selection import choose
from accel_core.vendor._text import Text
from accel_core.vendor.parts import Trait

__all__ = ["NUMBER", "Trait", "Vendor", "choose"]

INTERFACE_VERSION = 7
NUMBER = 2


@dataclass(frozen=True)
class Vendor(Text):
    """One record: `key` and more. The rest
    is not shown."""

    key: str

    @classmethod
    def of(cls, key: str, /, *, last: int | None = None) -> "Vendor":
        """Makes one."""

    def _private(self) -> None: ...


def hidden() -> None: ...
'''
PARTS = '''"""Parts."""

__all__ = ["Trait", "left_over"]


class Trait(Exception):
    """Why not."""

    def text(self) -> str:
        """What is printed."""


class Worse(Trait): ...


def left_over() -> None: ...
'''
DEVICE = '''"""Devices."""

from accel_core.vendor import Trait


class Device(Trait):
    def text(self) -> str: ...

    def more(self): ...
'''
EXPECTED = """## accel_core.vendor

Records.

- `NUMBER = 2`
- `class Trait(Exception)`: Why not.
  - `text() -> str`: What is printed.
- `class Vendor(key: str)`: One record: `key` and more.
  - `length() -> int`: Of the text.
  - `classmethod of(key: str, /, *, last: int | None = None) -> Vendor`: Makes one.
- `choose(keys: list[str]) -> str`: Pick.

## accel_core.vendor.parts

Parts.

- `left_over() -> None`

## accel_core.device

Devices.

- `class Device(Trait)`
  - `more()`
"""


@pytest.fixture
def api(repository: Repository) -> Repository:
    repository.write(
        "pyproject.toml",
        '[tool.accel.api]\npackages = ["accel_core.vendor", "accel_core.device"]\nbase = ""\n',
    )
    repository.write("docs/x.md", "")
    for path, text in {
        "vendor/__init__": VENDOR,
        "vendor/parts": PARTS,
        "vendor/_text": 'class Text:\n    def length(self) -> int:\n        """Of the text."""\n',
        "device": DEVICE,
        "selection": 'def choose(keys: list[str]) -> str:\n    """Pick."""\n',
    }.items():
        repository.write(f"{CORE}/{path}.py", HEADER + text)
    return repository


def test_each_public_name_has_one_line_where_vendors_import_it(api: Repository) -> None:
    assert public_surface.main(["write"], api.root) == 0
    page = (api.root / public_surface.PAGE).read_text(encoding="utf-8")
    head, _, sections = page.partition("\n## ")
    assert "## " + sections == EXPECTED
    assert "The number: 7." in head


def test_a_page_that_is_missing_or_old_is_told_with_what_to_do(
    api: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert public_surface.main(["check"], api.root) == 1
    assert "do:       python -m ci.public_surface write" in capsys.readouterr().err
    assert public_surface.main(["write"], api.root) == 0
    api.write(f"{CORE}/selection.py", HEADER + "def choose(keys: list[str], more: int) -> str: ...\n")
    assert public_surface.main(["check"], api.root) == 1


def test_a_core_that_cannot_be_read_is_an_error_in_four_parts(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert public_surface.main(["check"], repository.root) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in ("found:", "expected:", "do:"))
