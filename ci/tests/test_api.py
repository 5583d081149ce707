# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
import pytest

from ci import api
from ci.tests.repository import HEADER, Repository

VENDOR = "packages/accel-core/src/accel_core/vendor.py"
RELEASED = "INTERFACE_VERSION = 3\n\ndef record(key: str) -> None: ...\n"


@pytest.fixture
def released(repository: Repository) -> Repository:
    """A core with the five public packages, released as 0.2.0."""
    for name in api.PUBLIC:
        repository.write(f"packages/accel-core/src/accel_core/{name}.py")
    repository.write(VENDOR, HEADER + RELEASED)
    repository.commit()
    repository.git("tag", "accel-core-v0.2.0")
    return repository


@pytest.mark.parametrize(
    ("now", "broken"),
    [
        (RELEASED + "\ndef more() -> None: ...\n", []),
        (
            RELEASED.replace("key: str", "key: str, more: int"),
            ["record(more): Parameter was added as required"],
        ),
        (RELEASED.replace("record", "_record"), ["record: Public object was removed"]),
        (RELEASED.replace("record", "renamed").replace("3", "4"), []),
    ],
)
def test_what_breaks_a_vendor_package_needs_a_new_interface_number(
    released: Repository, now: str, broken: list[str]
) -> None:
    released.write(VENDOR, HEADER + now)
    released.commit()
    found = [problem.found for problem in api.check(released.root)]
    assert len(found) == len(broken)
    assert all(what in text for what, text in zip(broken, found, strict=True))


def test_before_a_release_nothing_is_compared(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(api.check(repository.root)) == []
    assert capsys.readouterr().out.startswith("nothing to compare with")


def test_a_release_is_compared_with_the_one_before(released: Repository) -> None:
    released.write(VENDOR, HEADER + RELEASED.replace("record", "renamed"))
    released.commit()
    released.git("tag", "accel-core-v0.3.0")
    assert len(list(api.check(released.root))) == 1
