# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Settings of builders that an accelerator does not have are none of its own."""

from __future__ import annotations

import pytest

from accel_core.op_builder import fused
from accel_testkit.mutation.scope import Scope


@pytest.mark.parametrize(
    ("module", "name", "lacks"),
    [
        (fused.__name__, "FusedAdamBuilder", False),
        (fused.__name__, "FusedLionBuilder", True),
        ("accel_core.op_builder.functions", "OpFunctions", False),
        (fused.__name__, "NoSuchClass", False),
        ("no_such_module", "FusedLionBuilder", False),
    ],
)
def test_class_of_a_builder_that_is_not_there_is_lacking(module: str, name: str, lacks: bool) -> None:
    surveyed = Scope(classes={f"{fused.__name__}.FusedAdamBuilder"})
    assert surveyed.lacks(module, name) is lacks


def test_scope_is_plain_data() -> None:
    surveyed = Scope(packages={"a"}, named={("b", 1)}, classes={"c.D"})
    read = Scope.read(surveyed.document())
    assert (read.packages, read.named, read.classes) == (surveyed.packages, surveyed.named, surveyed.classes)
