# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices that the `deepspeed` command chooses under an inherited visible-devices variable."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import VisibleDevices

pytestmark = pytest.mark.upstream
VISIBLE = "TOY_VISIBLE_DEVICES"


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`chosen("2,3", "--num_gpus", "1")` are the devices by host, where the runtime counts those of the mask only."""
    from deepspeed.launcher import runner as stock

    def choose(
        mask: str, *options: str, traits: Any = (), count: int = -1, variables: Any = (VISIBLE,)
    ) -> Any:
        monkeypatch.setenv(VISIBLE, mask)
        accelerator = SimpleNamespace(
            visible_devices_envs=lambda: list(variables), traits=dict.fromkeys(traits)
        )
        if count >= 0:
            rule = VisibleDevices((VISIBLE,), later=("TOY_SELECTOR",))
            accelerator = SimpleNamespace(**vars(accelerator), visible=rule, device_count=lambda: count)
        monkeypatch.setattr(stock, "get_accelerator", lambda: accelerator)
        args = stock.parse_args([*options, "train.py"])
        if not variables:  # the runner takes the first one
            assert os.environ.get(stock.get_accelerator().visible_devices_envs()[0]) is None
        pool = {"localhost": len(mask.split(","))}
        return dict(stock.parse_inclusion_exclusion(pool, args.include, args.exclude)), args.num_gpus

    return choose


@pytest.mark.parametrize(
    ("mask", "options", "devices"),
    [
        ("2,3", (), [2, 3]),
        ("3,1", (), [3, 1]),
        ("2,3", ("--num_gpus", "1"), [2]),
        ("GPU-9f,MIG-3", (), ["GPU-9f", "MIG-3"]),
        ("GPU-9f,MIG-3", ("--num_gpus", "1", "--num_nodes", "1"), ["GPU-9f"]),
        ("2,5,7", ("--include", "localhost:7,2"), [2, 7]),
        ("2,5,7", ("--exclude", "localhost:5"), [2, 7]),
    ],
)
def test_devices_are_those_of_the_mask(chosen, mask, options, devices):
    assert chosen(mask, *options) == ({"localhost": devices}, -1)
    assert VISIBLE not in os.environ  # as DeepSpeed's runner leaves it; its launcher sets it for the ranks


@pytest.mark.parametrize("options", [("--num_gpus", "3"), ("--num_gpus", "0"), ("--include", "localhost:1")])
def test_a_mask_is_not_widened(chosen, options):
    with pytest.raises(InvalidEnvironment, match="outside of TOY_VISIBLE_DEVICES"):
        chosen("2,3", *options)


def test_ignored_devices_start_no_rank(chosen, caplog, monkeypatch):
    assert chosen("1,9,2", count=1) == ({"localhost": [1]}, -1)
    assert caplog.messages == ["the runtime ignores 9, 2 of TOY_VISIBLE_DEVICES=1,9,2"]
    with pytest.raises(InvalidEnvironment, match="no device of this machine, with TOY_VISIBLE_DEVICES=9"):
        chosen("9", count=0)
    monkeypatch.setenv("TOY_SELECTOR", "1")
    with pytest.raises(InvalidEnvironment, match="TOY_SELECTOR=1, with TOY_VISIBLE_DEVICES=2,3"):
        chosen("2,3", count=1)


def test_names_cannot_be_filtered_by_numbers(chosen):
    with pytest.raises(InvalidEnvironment, match="a filter has numbers"):
        chosen("GPU-9f", "--include", "localhost:0")


def test_a_variable_that_no_runtime_reads_is_no_mask(chosen):
    assert chosen("5", "--num_gpus", "1", traits=["indexed_devices"]) == ({"localhost": [0]}, 1)
    assert os.environ[VISIBLE] == "5"


def test_devices_without_a_visible_devices_variable(chosen):
    assert chosen("0,1", "--num_gpus", "1", variables=()) == ({"localhost": [0, 1]}, 1)
    assert chosen("0,1", "--include", "localhost:0", variables=())[0] == {"localhost": [0]}
    with pytest.raises(InvalidEnvironment, match="rank i uses device i"):
        chosen("0,1", "--include", "localhost:1", variables=())
