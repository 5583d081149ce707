# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The vendors' fused operators: real schemas, results as in float64, and only on their vendor's device."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from accel_sim import ops, surface

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "simulated-devices.md"


def _checks_of(key):
    return importlib.import_module(f"accel_sim.checks.fused_{key}").CHECKS.by_name


def _names(key):
    return {op.name.partition(".")[0] for op in ops.of(key).table}


@pytest.mark.parametrize(
    ("key", "lazy", "check"),
    [
        (key, lazy, check)
        for key in ops.VENDORS
        for lazy in (("1", "0") if key == "hpu" else ("1",))
        for check in _checks_of(key)
    ],
)
def test_fused_op_equals_float64_and_refuses_host_tensors(fused, key, lazy, check):
    assert not fused(key, lazy)[check]


@pytest.mark.parametrize("key", ops.VENDORS)
def test_every_fused_op_is_checked_and_documented(key):
    assert _names(key) <= set(_checks_of(key))
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in _names(key):
        assert f"`{name}`" in text, name


@pytest.mark.parametrize("key", ops.VENDORS)
def test_schemas_are_the_surfaces_and_only_those_of_sdaa_are_unconfirmed(key):
    names = surface.load(key).names
    for op in ops.of(key).table:
        known = names[f"torch.ops.{ops.of(key).namespace}.{op.name.partition('.')[0]}"]
        assert op.schema in known.signature
        assert op.confirmed == (key != "sdaa")


def test_torch_npu_offers_them_under_its_own_name_with_the_real_schema(python):
    done = python(
        "npu",
        """
import torch, torch_npu
print(torch_npu.npu_rms_norm is torch.ops.npu.npu_rms_norm, hasattr(torch.ops.npu, "npu_grouped_matmul"))
print(torch.ops.npu.npu_apply_adam_w.default._schema, torch.ops.npu.npu_apply_adam_w.out._schema, sep="; ")
torch_npu.npu_grouped_matmul()
""",
    )
    first, second = done.stdout.splitlines()
    assert first == "True False"
    assert second == surface.load("npu").names["torch.ops.npu.npu_apply_adam_w"].signature
    assert "torch_npu.npu_grouped_matmul is not simulated" in done.stderr


def test_another_vendors_ops_are_not_there(python):
    done = python("mlu", "import torch, torch_mlu; print(hasattr(torch.ops.npu, 'npu_rms_norm'))")
    assert done.stdout.strip() == "False", done.stderr


def test_parameters_that_are_not_simulated_say_so(python):
    source = """
import torch, torch_npu
x = torch.ones(1, 1, 2, 4, device="npu")
torch_npu.npu_fusion_attention(x, x, x, 1, "BNSD", sparse_mode=4)
"""
    done = python("npu", source)
    assert "torch.ops.npu.npu_fusion_attention with sparse_mode 4" in done.stderr
