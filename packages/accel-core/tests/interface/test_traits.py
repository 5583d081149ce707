# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Traits name features and ops; a key that names neither is refused when the accelerator is constructed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accel_core.device import TorchDeviceAccelerator
from accel_core.errors import InvalidTraits
from accel_core.op_builder import OpTable, names
from accel_core.vendor import Feature, Trait

TRAIT = Trait.unsupported("the card lacks it")


class Toy(TorchDeviceAccelerator):
    def __init__(self, traits: Any) -> None:
        ops = OpTable(__name__, {"OwnOpBuilder": "toy:OwnOpBuilder"})
        super().__init__("cpu", collectives="gloo", ops=ops, traits=traits, device_module=torch.cpu)  # type: ignore[arg-type]

    def visible_devices_envs(self) -> list[str]:
        return ["TOY_VISIBLE_DEVICES"]


@pytest.mark.parametrize("key", [*Feature, *names.UPSTREAM, *names.ONE_DEVICE, "OwnOpBuilder"], ids=str)
def test_every_feature_and_every_builder_can_be_declared_missing(key: str) -> None:
    assert Toy({key: TRAIT}).traits[str(key)] is TRAIT


def test_a_feature_and_its_plain_key_are_the_same_trait() -> None:
    traits = Toy({Feature.STREAMS: TRAIT, "events": TRAIT}).traits
    assert traits[Feature.EVENTS] is traits["streams"] is TRAIT
    assert {type(key) for key in traits} == {str}


@pytest.mark.parametrize(
    ("key", "nearest"),
    [("stream", "streams"), ("FusedAdam", "FusedAdamBuilder"), ("pinned-memory", "pinned_memory")],
)
def test_an_unknown_key_is_refused_with_the_nearest_valid_ones(key: str, nearest: str) -> None:
    with pytest.raises(InvalidTraits) as error:
        Toy({"graphs": TRAIT, key: TRAIT})
    assert repr(key) in error.value.found
    assert "'graphs'" not in error.value.found
    assert nearest in error.value.expected


def test_an_unknown_key_near_to_nothing_is_refused_without_advice_that_misleads() -> None:
    with pytest.raises(InvalidTraits) as error:
        Toy({"qqqqqqqqqqqq": TRAIT})
    assert "nearest" not in error.value.expected


@pytest.mark.parametrize("value", ["no streams", None, Trait], ids=repr)
def test_a_value_that_is_no_trait_is_refused(value: Any) -> None:
    with pytest.raises(InvalidTraits, match="streams: "):
        Toy({"streams": value})


def test_every_feature_has_a_key_in_lower_case_and_a_sentence() -> None:
    for feature in Feature:
        assert feature.value == feature.name.lower() == f"{feature}"
        assert feature.sentence.endswith(".")
