# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A shown output may differ from the real one where machines differ, and nowhere else."""

from __future__ import annotations

import pytest

from ci.printed import first_difference, same


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 0.148  on acme:0", "loss 0.1485 on acme:0"),
        ("loss 45.25, bound 1.6e-06", "loss 45.28, bound 1.61e-06"),
        ("torch 2.13.0+cpu", "torch 2.14.1"),
        ("torch 2.13.0: 0.1", "torch 2.9.1: 0.13"),
        (".venv/bin/python -u train.py", "/usr/bin/python3.12 -u train.py"),
        ("norm [1.5, …]", "norm [1.5, 7, 8]"),
        ("fits with 2 GiB …", "fits with 2 GiB to spare"),
    ],
)
def test_what_differs_between_machines_may_differ(shown: str, printed: str) -> None:
    assert same(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("loss 0.148  on acme:0", "loss 0.158 on acme:0"),
        ("loss 0.148  on acme:0", "loss -0.148 on acme:0"),
        ("loss 0.148  on acme:0", "loss nan on acme:0"),
        ("bound 1.6e-06", "bound 1.6e-05"),
        ("loss 0.1", "loss 0.2"),
        ("loss 45.25", "loss 45.3"),
        ("host 10.0.0.1", "host 10.0.0.2"),
        ("host 10.11.0.1", "host 10.12.0.1"),
        ("took 2.6 s", "took 2.7 s"),
        ("took 2 minutes", "took 3 minutes"),
        ("48 tokens", "49 tokens"),
        ("took 2.6 s", "took 2.6 min"),
        (".venv/bin/python", "/usr/bin/pypy"),
        ("train.py:41:9: rewritten", "train.py:42:9: rewritten"),
        ("npu chosen", "npu present"),
        ("chosen: npu", "chosen: npu, with a warning"),
    ],
)
def test_anything_else_is_a_difference(shown: str, printed: str) -> None:
    assert not same(shown, printed)


PRINTED = ["begin", "one", "two", "three", "end"]


@pytest.mark.parametrize("shown", [["one", "two"], ["begin", "…", "end"], ["…", "three"], ["one", "…"]])
def test_shown_lines_follow_each_other_in_the_output(shown: list[str]) -> None:
    assert first_difference(shown, PRINTED) is None


@pytest.mark.parametrize(
    ("shown", "named"),
    [
        (["one", "three"], "three"),
        (["two", "one"], "one"),
        (["begin", "…", "four"], "four"),
        (["zero"], "zero"),
    ],
)
def test_the_first_line_that_is_not_in_its_place_is_named(shown: list[str], named: str) -> None:
    assert first_difference(shown, PRINTED) == named
