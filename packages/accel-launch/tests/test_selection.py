# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""--include, --exclude, --num_nodes, --num_accelerators."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_launch.errors import InvalidSelection
from accel_launch.hosts import select

POOL = {"worker-0": 4, "worker-1": 4, "me@worker-2": 2, "[::1]": 1}


@pytest.mark.parametrize(
    ("include", "slots"),
    [
        ("worker-0", {"worker-0": (0, 1, 2, 3)}),
        ("worker-1:0,2@worker-0", {"worker-0": (0, 1, 2, 3), "worker-1": (0, 2)}),
        ("worker-0:2,0,2", {"worker-0": (0, 2)}),
        ("worker-0:1@worker-0:3", {"worker-0": (1, 3)}),
        ("me@worker-2", {"me@worker-2": (0, 1)}),
        ("worker-0:0@me@worker-2:1@[::1]:0", {"worker-0": (0,), "me@worker-2": (1,), "[::1]": (0,)}),
    ],
)
def test_included(include: str, slots: dict[str, tuple[int, ...]]) -> None:
    assert list(select(POOL, include=include).items()) == list(slots.items())


@pytest.mark.parametrize(
    ("exclude", "slots"),
    [
        (
            "worker-1:0",
            {"worker-0": (0, 1, 2, 3), "worker-1": (1, 2, 3), "me@worker-2": (0, 1), "[::1]": (0,)},
        ),
        ("worker-0@worker-1@[::1]:0", {"me@worker-2": (0, 1)}),
        ("worker-0:0,1,2,3@me@worker-2", {"worker-1": (0, 1, 2, 3), "[::1]": (0,)}),
    ],
)
def test_excluded(exclude: str, slots: dict[str, tuple[int, ...]]) -> None:
    assert list(select(POOL, exclude=exclude).items()) == list(slots.items())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("worker-7", "no host 'worker-7'"),
        ("worker-0:4", "no slot 4 on worker-0"),
        ("worker-0:", "not HOST or HOST:SLOT"),
        ("worker-0:a", "not HOST or HOST:SLOT"),
        ("worker-0:-1", "not HOST or HOST:SLOT"),
        ("worker-0:0-2", "not HOST or HOST:SLOT"),
        ("worker-0:0,,1", "not HOST or HOST:SLOT"),
        ("worker-0:0:1", "not HOST or HOST:SLOT"),
        ("worker-0@", "not HOST or HOST:SLOT"),
        ("@", "not HOST or HOST:SLOT"),
        ("worker-0 worker-1", "no host 'worker-0 worker-1'"),
        ("worker-0:99999999999", "not HOST or HOST:SLOT"),
    ],
)
@pytest.mark.parametrize("option", ["include", "exclude"])
def test_unknown_hosts_and_slots_are_named_with_those_there_are(text: str, named: str, option: str) -> None:
    with pytest.raises(InvalidSelection) as caught:
        select(POOL, **{option: text})  # type: ignore[arg-type]
    assert named in caught.value.found
    assert "worker-0, worker-1, me@worker-2, [::1]" in caught.value.expected


def test_the_first_hosts_and_slots() -> None:
    pool = {"worker-0": 4, "worker-1": 4, "worker-2": 2}
    assert select(pool, num_nodes=2) == {"worker-0": (0, 1, 2, 3), "worker-1": (0, 1, 2, 3)}
    assert select(pool, num_slots=1) == {"worker-0": (0,), "worker-1": (0,), "worker-2": (0,)}
    assert select(pool, num_nodes=1, num_slots=2) == {"worker-0": (0, 1)}


@pytest.mark.parametrize(
    "options",
    [
        {"num_nodes": 3},
        {"num_nodes": 0},
        {"num_nodes": -2},
        {"num_slots": 5},
        {"num_slots": 0},
        {"include": "a", "exclude": "b"},
        {"include": "a", "num_nodes": 1},
        {"exclude": "a:0", "num_slots": 1},
        {"exclude": "a@b"},
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str | int]) -> None:
    with pytest.raises(InvalidSelection):
        select({"a": 4, "b": 4}, **options)  # type: ignore[arg-type]


def test_fewer_hosts_count_for_the_slots_that_all_must_have() -> None:
    assert select({"a": 4, "b": 2}, num_nodes=1, num_slots=4) == {"a": (0, 1, 2, 3)}


_PIECES = st.sampled_from(
    ["worker-0", "worker-1", "me@worker-2", "[::1]", "@", ":", ",", "0", "1", "7", " ", "[", "]"]
)


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=10).map("".join)), st.booleans())
def test_any_text_selects_slots_that_exist_or_is_a_documented_error(text: str, include: bool) -> None:
    try:
        slots = select(POOL, include=text) if include else select(POOL, exclude=text)
    except InvalidSelection:
        return
    assert slots
    for host, chosen in slots.items():
        assert chosen
        assert set(chosen) <= set(range(POOL[host]))
        assert list(chosen) == sorted(set(chosen))
        if include and text:
            assert re.search(rf"(^|@){re.escape(host)}($|[:@])", text)
