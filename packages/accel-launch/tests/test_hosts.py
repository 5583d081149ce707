# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hostfiles, and what --include, --exclude, --num_nodes and --num_accelerators select."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel_launch import planning
from accel_launch.errors import InvalidArguments
from accel_launch.plan import is_host_name
from accel_launch.planning import select


def test_hostfile():
    text = "# two racks\n\nworker-1 slots=4\n\tworker-0\t slots=16   \nme@10.0.0.7 slots=1 # spare\r\n[fe80::1] slots=2"
    assert list(planning.parse_hostfile(text).items()) == [
        ("worker-1", 4),
        ("worker-0", 16),
        ("me@10.0.0.7", 1),
        ("[fe80::1]", 2),
    ]


SLOTS = "`slots=` and a whole number"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        *(
            (f"worker-2 {rest}", SLOTS)
            for rest in ("", "4", "slots=", "slots=-1", "slots=٣", "slots=4 max_slots=8")
        ),
        ("worker-2 slots=0", "0 slots"),
        ("worker-2 slots=99999", "99999 slots"),
        ("worker-0 slots=4", "worker-0 is on line 1 already"),
        ("WORKER-0 slots=4", "WORKER-0 is on line 1 already"),
        ("me@worker-0 slots=4", "me@worker-0 is on line 1 already"),
        *(
            (f"{host} slots=4", "not the name of a host")
            for host in ("-oProxyCommand=reboot", "worker;reboot", "$(reboot)", "worker#2")
        ),
    ],
)
def test_wrong_line_is_named(line, named, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(f"worker-0 slots=4\n# comment\n{line}\nworker-9 slots=1\n")
    with pytest.raises(InvalidArguments) as caught:
        planning.read_hostfile(str(path))
    assert f"{path}:3: {line.strip()!r}" in caught.value.message
    assert named in caught.value.message


def test_unusable_hostfiles(tmp_path, monkeypatch):
    for text in ("", "\n\n", "# worker-0 slots=4\n"):
        with pytest.raises(InvalidArguments, match="no line with a host"):
            planning.parse_hostfile(text)
    (tmp_path / "binary").write_bytes(b"worker-0 slots=4\n\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "binary", Path("\0")):
        with pytest.raises(InvalidArguments, match="cannot read the hostfile"):
            planning.read_hostfile(str(path))
    # The default hostfile need not exist.
    monkeypatch.setattr(planning, "DEFAULT_HOSTFILE", str(tmp_path / "hostfile"))
    assert planning.read_hostfile(None) is None
    (tmp_path / "hostfile").write_text("worker-0 slots=2\n")
    assert planning.read_hostfile(None) == {"worker-0": 2}


_PIECES = st.sampled_from(["worker-0", "a", *" \t\n\r", "slots=", *"=1#@-", "42", "[::1]", "\x85", "é"])


@given(st.one_of(st.text(), st.lists(_PIECES, max_size=12).map("".join)))
def test_random_hostfile(text):
    with suppress(InvalidArguments):
        found = planning.parse_hostfile(text)
        # Nothing that was written is lost.
        lines = [line for line in text.split("\n") if line.strip() and not line.strip().startswith("#")]
        assert len(found) == len(lines)
        for host, slots in found.items():
            assert is_host_name(host)
            assert not host.startswith("-")
            assert not set(host) & set(" \t;|&$`'\"\\<>()*?!~#{}\n")
            assert 0 < slots <= planning.MOST_SLOTS


POOL = {"worker-0": 4, "worker-1": 4, "me@worker-2": 2, "[::1]": 1}


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ("include=worker-0", {"worker-0": (0, 1, 2, 3)}),
        ("include=worker-1:0,2@worker-0", {"worker-0": (0, 1, 2, 3), "worker-1": (0, 2)}),
        ("include=worker-0:2,0,2", {"worker-0": (0, 2)}),
        ("include=worker-0:1@worker-0:3", {"worker-0": (1, 3)}),
        ("include=me@worker-2", {"me@worker-2": (0, 1)}),
        (
            "include=worker-0:0@me@worker-2:1@[::1]:0",
            {"worker-0": (0,), "me@worker-2": (1,), "[::1]": (0,)},
        ),
        ("exclude=worker-0:0@worker-1@[::1]:0", {"worker-0": (1, 2, 3), "me@worker-2": (0, 1)}),
        ("exclude=worker-0:0,1,2,3@me@worker-2", {"worker-1": (0, 1, 2, 3), "[::1]": (0,)}),
        ("num_nodes=2", {"worker-0": (0, 1, 2, 3), "worker-1": (0, 1, 2, 3)}),
        ("num_slots=1", dict.fromkeys(POOL, (0,))),
        # Fewer hosts count for the slots that all must have.
        ("num_nodes=2 num_slots=4", {"worker-0": (0, 1, 2, 3), "worker-1": (0, 1, 2, 3)}),
    ],
)
def test_selected_slots(options, slots):
    given = dict(option.split("=") for option in options.split())
    found = select(POOL, **{name: int(text) if text.isdigit() else text for name, text in given.items()})  # type: ignore[arg-type]
    assert list(found.items()) == list(slots.items())


@pytest.mark.parametrize(
    "text",
    ["worker-7", "worker-0:4", "worker-0 worker-1", "worker-1@me"]
    + [f"worker-0{rest}" for rest in (":", ":a", ":-1", ":0-2", ":0,,1", ":0:1", "@", ":99999999999")],
)
@pytest.mark.parametrize("option", ["include", "exclude"])
def test_unknown_hosts_and_slots(text, option):
    with pytest.raises(InvalidArguments) as caught:
        select(POOL, **{option: text})  # type: ignore[arg-type]
    assert f"--{option} {text!r}" in caught.value.message
    assert "worker-0, worker-1, me@worker-2, [::1]" in caught.value.message


@pytest.mark.parametrize(
    "options",
    [
        *({"num_nodes": number} for number in (3, 0, -2)),
        *({"num_slots": number} for number in (5, 0)),
        {"include": "a", "exclude": "b"},
        {"include": "a", "num_nodes": 1},
        {"exclude": "a:0", "num_slots": 1},
        {"exclude": "a@b"},
    ],
)
def test_impossible_selection(options):
    with pytest.raises(InvalidArguments, match="cannot select hosts and slots"):
        select({"a": 4, "b": 4}, **options)  # type: ignore[arg-type]
