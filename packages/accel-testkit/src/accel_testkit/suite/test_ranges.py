# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranges: marks for a profiler, in every form that callers use."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit.suite.expect import expect, expect_type, fail

pytestmark = pytest.mark.tier("host")

_TEXTS = {
    "empty": "",
    "percent signs": "100 % done %s %d",
    "braces": "{} {name}",
    "letters": "größe 尺寸",
    "lines": "a\nb",
    "long": "x" * 5000,
}


def test_range_takes_a_message(accelerator: DeepSpeedAccelerator) -> None:
    """`range_push(msg)` and `range_pop()` nest, with a profiler and without."""
    accelerator.range_push("outer")
    accelerator.range_push("inner")
    accelerator.range_pop()
    accelerator.range_pop()


def test_range_takes_a_domain(accelerator: DeepSpeedAccelerator) -> None:
    """A domain and a category may be given, and the domain again to the pop."""
    problems = []
    try:
        accelerator.range_push("step", domain="DeepSpeed", category="forward")
    except TypeError as error:
        problems.append(str(error))
    try:
        accelerator.range_pop(domain="DeepSpeed")
    except TypeError as error:
        problems.append(str(error))
    expect(
        not problems,
        "ranges refuse a domain",
        found="; ".join(problems),
        expected="range_push(msg, domain=None, category=None), range_pop(domain=None)",
        do="take the arguments, and ignore them where the profiler has no domains",
    )


def test_range_that_nobody_opened_can_be_closed(accelerator: DeepSpeedAccelerator) -> None:
    """`range_pop()` without a range raises nothing: a profiler that starts late has not seen the push."""
    accelerator.range_pop()
    accelerator.range_push("step")
    accelerator.range_pop()
    accelerator.range_pop()


def test_domains_are_a_yes_or_no(accelerator: DeepSpeedAccelerator) -> None:
    """`supports_nvtx_domain` is True or False."""
    expect_type(accelerator.supports_nvtx_domain, bool, "supports_nvtx_domain", do="set a bool on the class")


@pytest.mark.parametrize("text", _TEXTS.values(), ids=_TEXTS)
def test_range_has_any_name(accelerator: DeepSpeedAccelerator, text: str) -> None:
    """A range is opened under any text: names of modules and of users' functions are passed on as they are."""
    try:
        accelerator.range_push(text)
        accelerator.range_pop()
        accelerator.range_push(text, domain="DeepSpeed", category=text or "none")
        accelerator.range_pop(domain="DeepSpeed")
    except Exception as error:
        fail(
            "a range cannot have this name",
            found=f"{type(error).__name__}: {error}",
            expected=f"a range named {text[:40]!r}, or nothing where there is no profiler",
            do="neither format nor encode the text beyond what the profiler takes",
        )


class _Profiler:
    """The package nvtx, as it keeps what it is told: through the objects of domains, and through its own functions."""

    def __init__(self) -> None:
        self.reported: list[tuple[str | None, str | None, str | None]] = []

    def get_domain(self, name: str) -> Any:
        return SimpleNamespace(
            get_event_attributes=lambda message=None, color=None, category=None, payload=None: (
                message,
                category,
            ),
            push_range=lambda message, category=None: self._push(name, message, category),
            pop_range=lambda: self.reported.append((name, None, None)),
        )

    def push_range(
        self,
        message: str | None = None,
        color: Any = None,
        domain: str | None = None,
        category: str | None = None,
    ) -> None:
        self.reported.append((domain, message, category))

    def pop_range(self, domain: str | None = None) -> None:
        self.reported.append((domain, None, None))

    def _push(self, domain: str, message: Any, category: str | None) -> None:
        self.reported.append((domain, *(message if isinstance(message, tuple) else (message, category))))


def test_domain_gets_its_ranges(accelerator: DeepSpeedAccelerator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `supports_nvtx_domain` and nvtx installed, a range is opened and closed in its domain, with its category."""
    if not accelerator.supports_nvtx_domain:
        return
    profiler = _Profiler()
    monkeypatch.setitem(sys.modules, "nvtx", profiler)
    first, second = f"first {id(profiler)}", f"second {id(profiler)}"  # nobody has asked for them before
    accelerator.range_push("outer", first, "forward")
    accelerator.range_push("inner", domain=second, category="backward")
    accelerator.range_pop(second)
    accelerator.range_pop(domain=first)
    wanted = [
        (first, "outer", "forward"),
        (second, "inner", "backward"),
        (second, None, None),
        (first, None, None),
    ]
    expect(
        profiler.reported == wanted,
        "ranges do not reach the domain that they are for",
        found=repr(profiler.reported),
        expected=repr(wanted),
        do="ask nvtx for the domain, and pass message and category on; or leave supports_nvtx_domain False",
    )
