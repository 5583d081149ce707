# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The ops of the CPU, and the reasons for those it does not have."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from accel_core.op_builder import NotImplementedBuilder, OpBuilder
from accel_cpu.accelerator import CPU_Accelerator
from accel_cpu.op_builder import TABLE
from accel_cpu.traits import TRAITS

MISSING = sorted(name for name in TRAITS if name.endswith("Builder"))


@pytest.fixture(scope="module")
def cpu() -> CPU_Accelerator:
    return CPU_Accelerator()


@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_builder_of_the_table_is_created_by_its_name(cpu: CPU_Accelerator, name: str) -> None:
    builder = cpu.create_op_builder(class_name=name)
    assert isinstance(builder, OpBuilder)
    assert type(builder).__name__ == name
    assert cpu.get_op_builder(class_name=name) is type(builder)
    assert type(builder.is_compatible()) is bool
    assert builder.reason


def test_deepspeed_finds_the_table_s_builders_and_no_others_in_the_package(cpu: CPU_Accelerator) -> None:
    # As upstream's all_ops.py looks: every name that ends with Builder, in every file of op_builder_dir().
    package = importlib.import_module(cpu.op_builder_dir())
    found = [
        name
        for _, stem, _ in pkgutil.iter_modules(package.__path__)
        for name in importlib.import_module(f"{package.__name__}.{stem}").__dir__()
        if name.endswith("Builder")
    ]
    assert sorted(found) == sorted(TABLE)


def test_op_names_are_distinct(cpu: CPU_Accelerator) -> None:
    names = [cpu.create_op_builder(name).name for name in TABLE]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_op_says_why(cpu: CPU_Accelerator, name: str) -> None:
    builder = cpu.create_op_builder(name)
    assert isinstance(builder, NotImplementedBuilder)
    assert builder.is_compatible() is False
    with pytest.raises(ValueError) as caught:
        builder.load()
    assert name in str(caught.value)
    assert TRAITS[name].reason in str(caught.value)
    assert "CPUAdamBuilder" in str(caught.value)


def test_a_name_nobody_knows_is_a_builder_too(cpu: CPU_Accelerator) -> None:
    builder = cpu.create_op_builder("NoSuchBuilder")
    assert builder.is_compatible() is False


def test_no_op_is_both_served_and_missing() -> None:
    assert not set(TABLE) & set(MISSING)
