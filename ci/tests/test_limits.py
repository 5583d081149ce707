# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The section of known limits has all that a package declares missing, what failed, and what was not run."""

from __future__ import annotations

import importlib.util

import pytest

from ci import limits
from ci.evidence import NOT_RUN, Cell
from ci.feature_matrix import Results

if importlib.util.find_spec("accel_mps") is None:
    pytest.skip("not run: accel_mps is not installed", allow_module_level=True)

VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "deepspeed": "0.19.8"}


def section(**found: object) -> str:
    result = Results("mps", "accel_mps.accelerator:MPS_Accelerator", True, VERSIONS, **found)  # type: ignore[arg-type]
    cells = [Cell("AutoTP", "mps", NOT_RUN, "see docs/a.md"), Cell("Graphs", "npu", NOT_RUN)]
    return limits.section(result, cells)


def test_every_trait_has_its_reason_and_says_where_it_holds() -> None:
    rows = [line.split(" | ") for line in section().splitlines() if line.startswith("| `")]
    named = {row[0].split("`")[1]: (row[1], row[2]) for row in rows}
    assert named["fp64"] == ("always", "Metal has no double precision |")
    assert named["bf16"] == ("on some machines", "macOS computes in bfloat16 from version 14 on |")


def test_ops_are_listed_once_below_their_reason() -> None:
    assert section().count("`RaggedOpsBuilder`") == 1


def test_what_failed_is_not_counted_as_declared() -> None:
    text = section(checks={"a": "passed", "b": "failed", "c": "streams"})
    assert "1 of 3 conformance checks passed, **1 failed**, 1 are declared missing" in text


def test_features_that_were_not_run_on_this_device_are_named() -> None:
    assert "Not run: AutoTP (see a.md)." in section()
    assert "Graphs" not in section().rpartition("Not run:")[2]


def test_a_page_without_a_place_for_the_section_is_an_error() -> None:
    with pytest.raises(ValueError, match="limits: generated"):
        limits.in_page("# mps", Results("mps", "", True, VERSIONS), ())
