# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names and quantities of the command line that are written into a job's file."""

from __future__ import annotations

import re

from accel_core.launch.errors import InvalidArguments
from accel_core.launch.options import Options

#: A label of DNS, which names of Kubernetes objects are; short enough for the names made of it.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
_RESOURCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,200})=([0-9]{1,9}(?:\.[0-9]{1,3})?[A-Za-z]{0,2})")


def job_name(options: Options) -> str:
    """Return the name of the job; raises `InvalidArguments`."""
    if not _NAME.fullmatch(options.job_name):
        raise _invalid("--job_name", options.job_name, "lower-case letters, digits and hyphens, at most 40")
    return options.job_name


def image(options: Options) -> str:
    """Return the container image; raises `InvalidArguments` if there is none."""
    if not options.image or not _IMAGE.fullmatch(options.image):
        what = "correct --image" if options.image else "add --image"
        raise _invalid("--image", options.image or "", "the name of a container image", what)
    return options.image


def resources(options: Options) -> dict[str, str]:
    """Return quantity by name of a resource; raises `InvalidArguments`."""
    found = {}
    for text in options.resource:
        match = _RESOURCE.fullmatch(text)
        if not match:
            raise _invalid("--resource", text, "NAME=N, such as cpu=64")
        found[match[1]] = match[2]
    return found


def _invalid(option: str, found: str, expected: str, do: str = "") -> InvalidArguments:
    return InvalidArguments(
        what=f"cannot use {option} with --emit",
        found=repr(found[:80]),
        expected=expected,
        do=do or f"correct {option}",
    )
