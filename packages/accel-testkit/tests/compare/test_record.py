# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files of a record: what is written is read; a file that was cut off, edited or made by others is refused by name."""

from pathlib import Path

import pytest
import torch

from accel_testkit.compare.digest import digest
from accel_testkit.compare.record import FORWARD, InvalidComparison, Writer, read


def _write(folder: Path, rank: int = 0, world: int = 1, limit: int = 1 << 20) -> Path:
    path = folder / f"rank{rank}.jsonl"
    writer = Writer(path, rank, world, "cpu", limit)
    for _ in range(3):
        number = writer.digest(digest(torch.arange(5.0)))
        writer.event(0, FORWARD, "model.a", "Linear", [number], [number], 0)
    writer.close()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    _write(tmp_path, 0, 2)
    _write(tmp_path, 1, 2)
    ranks = read(tmp_path)
    assert [rank.rank for rank in ranks] == [0, 1]
    assert [event.key.nth for event in ranks[0].events] == [0, 1, 2]
    assert ranks[0].events[0].results == (digest(torch.arange(5.0)),)
    assert ranks[0].whole


def test_record_of_a_killed_rank_is_read_to_its_last_whole_line(tmp_path: Path) -> None:
    path = _write(tmp_path)
    path.write_text(path.read_text()[:-40])
    (rank,) = read(tmp_path)
    assert not rank.whole
    assert 2 <= len(rank.events) <= 3


def test_limit_ends_the_record_and_not_the_program(tmp_path: Path) -> None:
    _write(tmp_path, limit=400)
    (rank,) = read(tmp_path)
    assert not rank.whole
    assert len(rank.events) < 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"schema":1', '"schema":2'),
        ('"schema":1', '"schema":[]'),
        ('"rank":0', '"rank":-1'),
        ('"world":1', '"world":1000000000000'),
        ('"in":[0]', '"in":[99999]'),
        ('"in":[0]', '"in":[-1]'),
        ('"in":[0]', '"in":["0"]'),
        ('"in":[0]', '"in":' + "[" * 5000 + "]" * 5000),
        ('"event":[0,"forward"', '"event":[0,"sideways"'),
        ('"event":[0,', '"event":[-1,'),
        ('"norm":', '"norm":NaN,"old":'),
        ('"norm":', '"norm":"x","old":'),
        ('"shape":[5]', '"shape":[-5]'),
        ('"inside":0', '"inside":-3'),
        ('{"digest":0', '[{"digest":0'),
    ],
)
def test_edited_record_is_refused(tmp_path: Path, old: str, new: str) -> None:
    path = _write(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidComparison, match="ACC-714"):
        read(tmp_path)


def test_folder_without_all_ranks_is_refused(tmp_path: Path) -> None:
    _write(tmp_path, 0, 2)
    with pytest.raises(InvalidComparison, match=r"files of ranks \[0\]"):
        read(tmp_path)
    with pytest.raises(InvalidComparison, match=r"files of ranks \[\]"):
        read(tmp_path / "nowhere")
