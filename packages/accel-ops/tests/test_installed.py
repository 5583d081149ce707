# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""In an environment made from wheels, the tests run the library of the wheel, not one that was compiled instead."""

import json
from importlib import metadata

import pytest

from accel_ops import library


def test_the_library_under_test_is_the_wheel_s() -> None:
    origin = json.loads(metadata.distribution("accel-ops").read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        pytest.skip("an editable install: it builds from the workspace")
    assert library.load().reason == library.WHEEL
