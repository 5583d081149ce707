# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names that may stand in a command line for another host: they have no character that a shell or ssh interprets."""

from __future__ import annotations

import re

#: user@host, host, address; an IPv6 address in brackets. No leading hyphen, which ssh would take for an option.
HOST = r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])"
_HOST = re.compile(HOST)
_SECRET = re.compile(
    r"(^|_)(\w*KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PAT|AUTH)(_|$)", re.IGNORECASE
)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_host_name(text: str) -> bool:
    """Whether the text is the name or address of a host, with or without a user."""
    return len(text) <= 320 and _HOST.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether the text is the name or address of a host; an IPv6 address may be without brackets."""
    return "@" not in text and (is_host_name(text) or is_host_name(f"[{text}]"))


def is_variable_name(text: str) -> bool:
    """Whether every shell takes the text as the name of an environment variable."""
    return _VARIABLE.fullmatch(text) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether a variable looks like a secret: by its name, or by a password in a URL."""
    return _SECRET.search(name) is not None or _URL_WITH_PASSWORD.search(value) is not None


def address(host: str) -> str:
    """Return the host's address for a connection: without user, and without the brackets of IPv6."""
    return host.rpartition("@")[2].strip("[]")


def machine_name(host: str) -> str:
    """Return the host of `user@host` as it is compared: a machine has one entry, whoever logs in."""
    return host.rpartition("@")[2].casefold()
