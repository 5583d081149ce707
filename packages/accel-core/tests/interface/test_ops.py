# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: builders are imported when asked for, and a missing op says why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from accel_core import NotImplementedBuilder, TorchDeviceAccelerator
from accel_core.errors import AccelError, InvalidOpTable, OpNotImplemented


def test_an_op_in_the_table_is_imported_when_it_is_asked_for(
    toy: TorchDeviceAccelerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_ops.py").write_text("class GoodBuilder:\n    NAME = 'good'\n")
    monkeypatch.syspath_prepend(tmp_path)
    kind = toy.get_op_builder(class_name="GoodBuilder")
    monkeypatch.delitem(sys.modules, "toy_ops")
    assert kind.NAME == "good"
    assert type(toy.create_op_builder(class_name="GoodBuilder")).NAME == "good"


def test_a_missing_op_says_which_device_why_and_what_there_is(toy: TorchDeviceAccelerator) -> None:
    builder = toy.create_op_builder("FusedLambBuilder")
    assert isinstance(builder, NotImplementedBuilder)
    assert (builder.name, builder.is_compatible()) == ("deepspeed_not_implemented", False)
    assert "the card has no square roots" in builder.reason
    with pytest.raises(OpNotImplemented) as caught:
        builder.load()
    for part in ("FusedLambBuilder", "meta", "the card has no square roots", "GoodBuilder"):
        assert part in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_a_missing_op_without_a_trait_is_answered_too(toy: TorchDeviceAccelerator) -> None:
    assert toy.get_op_builder("NobodyBuilder") is toy.get_op_builder("NobodyBuilder")
    assert "NobodyBuilder" in toy.create_op_builder("NobodyBuilder").reason


@pytest.mark.parametrize(
    ("name", "target"), [("GoneBuilder", "no_such_module"), ("MisspeltBuilder", "no-dotted-name")]
)
def test_a_table_that_names_nothing_importable_is_an_error_of_its_own(
    toy: TorchDeviceAccelerator, name: str, target: str
) -> None:
    with pytest.raises(InvalidOpTable, match=target):
        toy.create_op_builder(name)


class RaisingBuilder(NotImplementedBuilder):
    def compatibility(self) -> tuple[bool, str]:
        raise OSError("no such driver")


def test_a_compatibility_probe_that_raises_means_no_with_the_reason() -> None:
    builder = RaisingBuilder()
    assert builder.is_compatible(verbose=True) is False
    assert "OSError: no such driver" in builder.reason


def test_errors_of_the_interface_are_accel_errors() -> None:
    assert issubclass(OpNotImplemented, AccelError)
    assert issubclass(OpNotImplemented, NotImplementedError)
