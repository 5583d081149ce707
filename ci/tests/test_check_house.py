# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from ci import check_house
from ci.house import python
from ci.house.source import Source
from ci.tests.repository import HEADER, Repository

CORE = "packages/accel-core/src/accel_core"
CPU = "packages/accel-cpu/src/accel_cpu"


def broken(repository: Repository) -> list[str]:
    """file:line and rule of everything that is not let through."""
    return [f"{v.file}:{v.line}: {v.rule}" for v, reason in check_house.check(repository.root) if not reason]


def function(lines: int) -> str:
    return "def f() -> None:\n" + "    pass\n" * (lines - 1)


LENGTH, FUNCTION = "a file has at most 300 lines", "a function has at most 40 lines"
DEEPSPEED, VENDOR = (
    "only accel_core/upstream imports deepspeed",
    "core names no vendor outside its two tables",
)

CASES = [
    # path, text, line and rule (None: keeps the rules)
    ("tests/long.py", HEADER + "\n" * 298, None),
    ("tests/long.py", HEADER + "\n" * 299, (1, LENGTH)),
    ("shared/long.h", HEADER.replace("#", "//") + "\n" * 299, (1, LENGTH)),
    ("docs/long.md", "\n" * 400, None),
    (f"{CPU}/accelerator.py", HEADER + "\n" * 148, None),
    (f"{CPU}/accelerator.py", HEADER + "\n" * 149, (1, "a vendor's class file has at most 150 lines")),
    ("packages/accel-cpu/tests/accelerator.py", HEADER + "\n" * 149, None),
    ("ci/f.py", HEADER + function(40), None),
    ("ci/f.py", HEADER + function(41), (3, FUNCTION)),
    ("ci/f.py", HEADER + "async " + function(41), (3, FUNCTION)),
    ("ci/f.py", HEADER + "def broken(:\n", (3, "Python that parses")),
    (f"{CPU}/x.py", HEADER + 'importlib.import_module("deepspeed.ops")\n', (3, DEEPSPEED)),
    (f"{CPU}/x.py", HEADER + 'def f() -> None:\n    import_module("deepspeed")\n', (4, DEEPSPEED)),
    (f"{CPU}/x.py", HEADER + 'import_module("deepspeed_like")\nimport_module(deepspeed)\n', None),
    (f"{CORE}/x.py", HEADER + '__import__("deepspeed")\n', (3, DEEPSPEED)),
    (f"{CORE}/upstream/x.py", HEADER + '__import__("deepspeed")\n', None),
    ("packages/accel-testkit/src/accel_testkit/x.py", HEADER + '__import__("deepspeed")\n', None),
    ("examples/x.py", HEADER + '__import__("deepspeed")\n', None),
    (f"{CORE}/x.py", HEADER + 'if key == "npu":\n    pass\n', (3, VENDOR)),
    (f"{CORE}/x.py", HEADER + 'key = f"{a}cpu"\n', (3, VENDOR)),
    (f"{CORE}/x.py", HEADER + '"""npu"""\n\nx = "npus"  # not "npu"\n', None),
    (f"{CORE}/x.py", HEADER + 'def f() -> None:\n    """npu"""\n', None),
    (f"{CPU}/x.py", HEADER + 'key = "cpu"\n', None),
]


@pytest.mark.parametrize(("path", "text", "expected"), CASES)
def test_each_rule_can_fail_and_pass(
    repository: Repository, path: str, text: str, expected: tuple[int, str] | None
) -> None:
    repository.write(path, text)
    assert broken(repository) == ([f"{path}:{expected[0]}: {expected[1]}"] if expected else [])


def test_a_third_partys_key_in_the_workspace_is_a_vendors_name_too(repository: Repository) -> None:
    repository.write(f"{CORE}/x.py", HEADER + 'key = "toy"\n')
    assert broken(repository) == []
    repository.package("accel-toy", requires=("accel-core>=0.1,<1",), vendor="toy")
    assert broken(repository) == [f"{CORE}/x.py:3: {VENDOR}"]


def test_ignored_and_binary_files_are_left_alone(repository: Repository) -> None:
    repository.write(".gitignore", "build/\n")
    repository.write("build/x.py", "no header\n")
    (repository.root / "loss.py").write_bytes(b"\xff\xfe\x00")
    assert broken(repository) == []


@pytest.mark.parametrize(
    "line",
    [
        'key = "npu"  # house: the name of a file format',
        'key = "npu"  # noqa: X1  # house: the name of a file format',
    ],
)
def test_a_line_that_says_why_is_let_through_and_listed(
    repository: Repository, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    repository.write(f"{CORE}/x.py", f"{HEADER}{line}\n")
    assert check_house.main([], repository.root) == 0
    output = capsys.readouterr().out
    assert f"{CORE}/x.py:3: {VENDOR}: 'npu' (let through: the name of a file format)" in output
    assert "0 broken, 1 let through" in output


def test_an_opt_out_without_a_reason_lets_nothing_through(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write(f"{CORE}/x.py", HEADER + 'key = "npu"  # house:\n')
    assert check_house.main([], repository.root) == 1
    assert "1 broken, 0 let through" in capsys.readouterr().out


def test_outside_git_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_house.main([], tmp_path) == 2
    assert "expected:" in capsys.readouterr().err


def test_the_vendors_names_are_read_from_cores_own_table() -> None:
    # A table that is written another way would silently switch the rule off.
    cascade = (Path(__file__).parents[2] / python.CASCADE).read_text(encoding="utf-8")
    assert python.vendor_keys(Source(python.CASCADE, cascade)) >= {"cpu", "npu", "xpu.external", "supa"}
