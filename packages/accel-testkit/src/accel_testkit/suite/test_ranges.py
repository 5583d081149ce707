# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ranges: marks for a profiler, in every form that callers use."""

from __future__ import annotations

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
