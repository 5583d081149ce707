# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a rehearsal: its verdict, and what it refuses to read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from accel_sim.errors import InvalidRecord
from accel_sim.rehearse.record import Rank, Rehearsal

from .records import GIB, OUT_OF_MEMORY, rank, rehearsal


def test_a_record_survives_json():
    record = rehearsal(rank(), OUT_OF_MEMORY)
    assert Rehearsal.from_json(record.to_json()) == record
    assert Rank.from_json(OUT_OF_MEMORY.to_json()) == OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("record", "verdict", "status"),
    [
        (rehearsal(rank()), "fits", 0),
        (rehearsal(rank(), OUT_OF_MEMORY), "does not fit", 3),
        (rehearsal(rank(reserved=63 * GIB)), "does not fit", 3),
        (rehearsal(rank(), rank(outcome="failed")), "failed", 1),
        (rehearsal(rank(outcome="failed"), OUT_OF_MEMORY), "does not fit", 3),
        (replace(rehearsal(rank()), interrupted=True), "stopped", 130),
        (rehearsal(), "failed", 1),
    ],
)
def test_the_verdict_is_that_of_the_rank_that_decides(record: Rehearsal, verdict: str, status: int):
    assert (record.verdict, record.exit_status) == (verdict, status)


def test_what_is_to_spare_is_counted_below_the_reserve():
    assert rehearsal(rank(reserved=20 * GIB), rank(reserved=40 * GIB)).spare == 22 * GIB


HOSTILE = [
    "", "[]", "null", "{", "[" * 100_000, '{"schema": 1}', '{"schema": 2, "program": []}', '{"schema": true}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_record_is_refused(text: str):
    with pytest.raises(InvalidRecord, match=r"ACC-711"):
        Rehearsal.from_json(text, "a.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory", -1), ("memory", 2**63), ("memory", True), ("memory", 1.5), ("seconds", float("nan")),
        ("seconds", float("inf")), ("program", "train.py"), ("program", ["a\0b"]), ("profile", None), ("steps", "3"),
        ("ranks_rehearsed", [{}]), ("assumed", {"a": 1}), ("\x1b[2J", 1),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_named(field: str, value: object):
    data = json.loads(rehearsal(rank()).to_json())
    data[field] = value
    with pytest.raises(InvalidRecord) as refused:
        Rehearsal.from_json(json.dumps(data))
    assert (field if field.isidentifier() else "x1b") in str(refused.value)
    assert "\x1b" not in str(refused.value)


def test_a_point_of_the_timeline_has_three_values():
    data = json.loads(rehearsal(rank()).to_json())
    data["ranks_rehearsed"][0]["timeline"] = [[0, 1]]
    with pytest.raises(InvalidRecord, match=r"timeline\[0\]"):
        Rehearsal.from_json(json.dumps(data))
