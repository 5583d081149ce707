# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The record of a rehearsal, its report on the terminal and as a page, the comparison of two; devices by name."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest

from accel_core.errors import InvalidInput
from accel_rehearse import page, report
from accel_rehearse.profiles import profile
from accel_rehearse.record import Collective, DryRank, Failure, Phase, Place, Rehearsal

from .records import GIB, OUT_OF_MEMORY, PROFILE, rank, rehearsal


def test_a_record_survives_json():
    record = rehearsal(rank(), OUT_OF_MEMORY)
    assert Rehearsal.from_json(record.to_json()) == record


def test_what_is_to_spare_is_counted_below_the_reserve():
    assert rehearsal(rank(reserved=20 * GIB), rank(reserved=40 * GIB)).spare == 22 * GIB


NO_RECORDS = [
    "", "[]", "null", "{", "[" * 100_000, '{"schema": 1}', '{"schema": 2, "program": []}', '{"schema": true}',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_RECORDS, ids=range(len(NO_RECORDS)))
def test_what_is_no_record_is_refused(text: str):
    with pytest.raises(InvalidInput, match=r"ACC-701"):
        Rehearsal.from_json(text, "a.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("reserve", -1), ("reserve", 2**63), ("reserve", True), ("reserve", 1.5), ("seconds", float("nan")),
        ("seconds", float("inf")), ("program", "train.py"), ("program", ["a\0b"]), ("profile", None), ("steps", "3"),
        ("ranks_rehearsed", [{}]), ("assumed", {"a": 1}), ("\x1b[2J", 1),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_named(field: str, value: object):
    data = json.loads(rehearsal(rank()).to_json())
    data[field] = value
    with pytest.raises(InvalidInput) as refused:
        Rehearsal.from_json(json.dumps(data))
    assert (field if field.isidentifier() else "x1b") in str(refused.value)
    assert "\x1b" not in str(refused.value)


FAILED = rank(rank=1, role="", outcome="failed", failure=Failure("boom\nmore"))
ASKED = "does not fit: rank 63 (last) asked for 2.00 GiB in forward, module model.layers.3.mlp, train.py:41"


@pytest.mark.parametrize(
    ("record", "verdict", "status", "sentence"),
    [
        (rehearsal(rank()), "fits", 0, "fits with 22.00 GiB to spare"),
        (rehearsal(rank(), OUT_OF_MEMORY), "does not fit", 3, ASKED),
        (rehearsal(rank(outcome="failed"), OUT_OF_MEMORY), "does not fit", 3, ASKED),
        (
            rehearsal(rank(reserved=63 * GIB)), "does not fit", 3,
            "does not fit: 63.00 GiB reserved of 62.00 GiB on rank 0 (first)",
        ),
        (rehearsal(rank(), FAILED), "failed", 1, "the program failed: rank 1 in the program: boom"),
        (
            rehearsal(rank(outcome="failed")), "failed", 1,
            "the program failed: rank 0 (first) ended without saying why",
        ),
        (rehearsal(), "failed", 1, "the program failed: no rank began"),
        (
            rehearsal(rank(), interrupted=True), "stopped", 130,
            "stopped before the end: what follows is what was seen until then",
        ),
    ],
)  # fmt: skip
def test_verdict(record: Rehearsal, verdict: str, status: int, sentence: str):
    assert (record.verdict, record.exit_status) == (verdict, status)
    assert report.terminal(record).splitlines()[0] == sentence
    assert f"<title>accel rehearse: {sentence}</title>" in page.html(record)


@pytest.mark.parametrize(
    "part",
    [
        "fits with 22.00 GiB to spare",
        "activations 20.00 GiB, parameters 10.00 GiB",
        "train.py:41, model.layers.3.mlp",
        "+1.00 GiB by rounding",
        "+9.00 GiB unused or fragmented",
        "a node of 8 such ranks",
        "96.00 GiB",
        "world (64)",
        "129.60 GiB",
        "no step is skipped",
        "kernel workspaces",
    ],
)
def test_terminal_and_page_say_the_same(part: str):
    record = rehearsal(rank())
    assert part in report.terminal(record)
    assert part in page.html(record)


def test_phases_are_in_the_order_of_a_step_and_unknown_ones_last():
    phases = tuple(Phase(name, 1, 1, 1) for name in ("mine", "step", "forward", "init"))
    assert [row["phase"] for row in report.peaks(rank(phases=phases))] == ["init", "forward", "step", "mine"]


def test_what_was_computed_and_what_is_unknown_is_named():
    text = report.terminal(rehearsal(rank(computed=("mine::op",), unanswered=3, notes=("a note",))))
    assert "rank 0 (first) computed what has no shape function: mine::op" in text
    assert "rank 0 (first) received 3 messages whose content is not known" in text
    assert "rank 0 (first): a note" in text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (GIB, "1.00 GiB"), (-GIB, "-1.00 GiB")]
)  # fmt: skip
def test_sizes_have_the_unit_that_suits(count: int, text: str):
    assert report.size(count) == text


HOSTILE = "<script>alert(1)</script>'\"><img src=http://x.example/a>\x1b[2J\r\u202e&amp;"


def hostile() -> Rehearsal:
    """Return a record with a hostile text in every field that has one."""
    bad: dict[str, Any] = {
        "role": HOSTILE,
        "phases": (Phase(HOSTILE, 9, 9, 9, {HOSTILE: 9}, HOSTILE, HOSTILE),),
        "timeline": ((0, 1, HOSTILE), (1000, 9, HOSTILE)),
        "largest": (Place(HOSTILE, HOSTILE, HOSTILE, 9),),
        "collectives": (Collective(HOSTILE, HOSTILE, 2, HOSTILE, HOSTILE, 1.0, 1.0),),
        "failure": Failure(HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1),
        "computed": (HOSTILE,),
        "notes": (HOSTILE,),
    }
    record = rehearsal(rank(**bad), rank(**bad, outcome="failed"), rank(**bad, outcome="out of memory"))
    profile = replace(record.profile, name=HOSTILE, source=HOSTILE)
    return replace(record, program=(HOSTILE,), profile=profile, assumed=(HOSTILE,), not_promised=(HOSTILE,))


class Tags(HTMLParser):
    """Collects the elements of a page, and every address that one of them would load."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href") or name.startswith("on")]


@pytest.mark.parametrize("record", [hostile(), rehearsal(rank(), OUT_OF_MEMORY)], ids=["hostile", "usual"])
def test_a_page_has_no_script_and_loads_nothing(record: Rehearsal):
    tags = Tags()
    tags.feed(page.html(Rehearsal.from_json(record.to_json())))
    assert not tags.names & {"script", "img", "iframe", "object", "embed"}
    assert tags.addresses == ["data:,"]
    assert "svg" in tags.names


def test_a_hostile_record_sends_no_control_characters_to_the_terminal():
    record = hostile()
    for text in (report.terminal(record), report.differences(record, rehearsal(rank()))):
        assert all(c.isprintable() or c == "\n" for c in text)


def test_the_picture_marks_the_peak_with_its_module_and_the_limit_when_it_is_near():
    text = page.html(rehearsal(rank(), reserve=31 * GIB))
    assert "30.00 GiB, forward, model.layers.3.mlp</text>" in text
    assert "33.00 GiB for the program" in text
    large = replace(PROFILE, capacity=400 * GIB)
    assert "for the program" not in page.html(rehearsal(rank(), profile=large))


def test_a_comparison_names_what_changed_and_by_how_much():
    smaller: DryRank = rank(reserved=30 * GIB, collectives=())
    text = report.differences(rehearsal(rank()), rehearsal(smaller, OUT_OF_MEMORY, ranks=32))
    assert "ranks: 64, 8 a node; 3 steps -> 32, 8 a node; 3 steps" in text
    assert "rank 0 (first), reserved: 40.00 GiB -> 30.00 GiB (-10.00 GiB)" in text
    assert "all_gather of 64 in forward, bfloat16, a step: 129.60 GiB -> 0 B (-129.60 GiB)" in text
    assert "rank 63 (last): rehearsed now" in text


def test_a_name_is_found_in_any_case_and_memory_replaces_its_capacity():
    assert profile(" CUDA:H100-80 ").capacity == int(79.11 * GIB)
    smaller = profile("cuda:h100-80", 40 * GIB)
    assert (smaller.capacity, smaller.source) == (40 * GIB, "the command's --memory")


@pytest.mark.parametrize(
    ("text", "suggested"),
    [("npu:910b64", "npu:910b-64"), ("cuda:h100", "cuda:h100-80"), ("hpu", "hpu:gaudi2")],
)
def test_a_name_that_is_nearly_right_is_suggested(text: str, suggested: str):
    with pytest.raises(InvalidInput, match=f"accel rehearse {suggested} "):
        profile(text)
