# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs changed at random: the result parses, a second run changes nothing, the rest stays."""

import ast
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import HERE, ODD_PROGRAMS, TARGETS, ported_once


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


#: Real-style files and odd programs, which editors and merges change.
FILES = [path.read_text(encoding="utf-8") for path in sorted((HERE / "programs").glob("*.py"))]
FILES += ODD_PROGRAMS.values()
_WORDS = ["cuda", "torch", "device", "None", "x", "0", "is_available", "self", "'cuda'", "not", "args.gpu"]


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    lines = draw(st.sampled_from(FILES)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "twice", "swap", "word", "another"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "twice":
                lines.insert(at, lines[at])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "word":
                words = list(re.finditer(r"\w+", lines[at]))
                if words:
                    word, new = draw(st.sampled_from(words)), draw(st.sampled_from(_WORDS))
                    lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
            case "another":
                others = draw(st.sampled_from(FILES)).splitlines(keepends=True)
                lines.insert(at, draw(st.sampled_from(others)))
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(text=_mutated())
def test_mutated_file(target: str, text: str) -> None:
    if _parses(text):
        ported_once(text, target)
