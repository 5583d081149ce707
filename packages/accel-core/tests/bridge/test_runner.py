# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which devices the `deepspeed` command chooses under an inherited visible-devices variable."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import InvalidEnvironment
from accel_core.upstream import runner

pytestmark = pytest.mark.upstream

NAME = "TOY_VISIBLE_DEVICES"


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`chosen("2,3", "--num_gpus", "1")` are the devices by host, where the runtime counts those of the mask only."""
    from deepspeed.launcher import runner as stock

    def choose(mask: str, *options: str, traits: Any = ()) -> Any:
        monkeypatch.setenv(NAME, mask)
        accelerator = SimpleNamespace(visible_devices_envs=lambda: [NAME], traits=dict.fromkeys(traits))
        functions = {name: getattr(stock, name) for name in ("parse_args", "parse_inclusion_exclusion")}
        module: Any = SimpleNamespace(**functions)
        runner.patch(module, lambda: accelerator)
        args = module.parse_args([*options, "train.py"])
        return dict(
            module.parse_inclusion_exclusion({"localhost": len(mask.split(","))}, args.include, args.exclude)
        ), args.num_gpus

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
def test_devices_are_those_of_the_mask(
    chosen: Any, mask: str, options: tuple[str, ...], devices: Any
) -> None:
    assert chosen(mask, *options) == ({"localhost": devices}, -1)
    assert NAME not in os.environ  # as DeepSpeed's runner leaves it; its launcher sets it for the ranks


@pytest.mark.parametrize("options", [("--num_gpus", "3"), ("--num_gpus", "0"), ("--include", "localhost:1")])
def test_a_mask_is_not_widened(chosen: Any, options: tuple[str, ...]) -> None:
    with pytest.raises(InvalidEnvironment, match="outside of TOY_VISIBLE_DEVICES"):
        chosen("2,3", *options)


def test_names_cannot_be_filtered_by_numbers(chosen: Any) -> None:
    with pytest.raises(InvalidEnvironment, match="a filter has numbers"):
        chosen("GPU-9f", "--include", "localhost:0")


def test_a_variable_that_no_runtime_reads_is_no_mask(chosen: Any) -> None:
    assert chosen("5", "--num_gpus", "1", traits=["indexed_devices"]) == ({"localhost": [0]}, 1)
    assert os.environ[NAME] == "5"
