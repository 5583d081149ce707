# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hostfiles: a line `worker-0 slots=4` for each host. Empty lines and comments, from `#` on, are ignored."""

from __future__ import annotations

import re
from pathlib import Path

from accel_core.launch.errors import InvalidHostfile
from accel_core.launch.names import is_host_name, machine_name

#: DeepSpeed's default; used if it exists and no other is named.
DEFAULT = "/job/hostfile"
#: More is a typing error, and would fill the memory.
MOST_SLOTS = 4096
_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>[0-9]{1,9})")


def read(named: str | None) -> dict[str, int] | None:
    """Return the number of slots by host, in the file's order; None without a hostfile.

    named: None if no `--hostfile` was given; then the default one is used, if it exists. Raises `InvalidHostfile`.
    """
    if named is None and not Path(DEFAULT).is_file():
        return None
    path = named if named is not None else DEFAULT
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidHostfile(
            what=f"cannot read the hostfile {path!r}",
            found=getattr(error, "strerror", None) or str(error),
            expected="a text file with a line `worker-0 slots=4` for each host",
            do="correct --hostfile, or leave it out to use this machine alone",
        ) from error
    return parse(text, path)


def parse(text: str, source: str = "hostfile") -> dict[str, int]:
    """Return the number of slots by host; raises `InvalidHostfile` with `source`, number and text of the line."""
    hosts: dict[str, int] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        content = re.sub(r"(^|\s)#.*", "", line).strip()
        if not content:
            continue
        at = f"{source}:{number}: {line.strip()[:200]!r}"
        match = _LINE.fullmatch(content)
        if not match or not is_host_name(match["host"]):
            raise _invalid(at, _complaint(content))
        host, slots = match["host"], int(match["slots"])
        if not 0 < slots <= MOST_SLOTS:
            raise _invalid(at, f"{slots} slots; a host has 1 to {MOST_SLOTS}")
        if (machine := machine_name(host)) in lines:
            raise _invalid(at, f"{host} is on line {lines[machine]} already")
        hosts[host], lines[machine] = slots, number
    if not hosts:
        raise _invalid(f"{source}: no line with a host", "")
    return hosts


def _complaint(content: str) -> str:
    host, _, rest = " ".join(content.split()).partition(" ")
    if not is_host_name(host):
        return f"{host[:80]!r} is not the name of a host"
    if not rest.startswith("slots="):
        return "`slots=` does not follow the host"
    number, _, trailing = rest.removeprefix("slots=").partition(" ")
    if not number.isascii() or not number.isdecimal():
        return "the slots are not a whole number"
    return f"text follows the slots: {trailing[:80]!r}" if trailing else "the number of slots is too large"


def _invalid(at: str, complaint: str) -> InvalidHostfile:
    return InvalidHostfile(
        what="cannot use the hostfile",
        found=f"{at}\n{complaint}".rstrip(),
        expected="a line `worker-0 slots=4` for each host, each host once; comments begin with #",
        do="correct the line",
    )
