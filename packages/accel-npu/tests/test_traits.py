# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Reasons that say something about DeepSpeed are true of the installed one."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest
from packaging.version import Version

from accel_npu.traits import TRAITS

pytestmark = pytest.mark.upstream


@pytest.fixture
def quantizer() -> ast.Module:
    """DeepSpeed's own quantizer for npu."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or Version(importlib.metadata.version("deepspeed")) < Version("0.19.8"):
        pytest.skip("not run: deepspeed 0.19.8")
    file = Path(str(spec.origin)).parent / "ops" / "op_builder" / "npu" / "quantizer.py"
    return ast.parse(file.read_text(encoding="utf-8"))


def test_deepspeed_s_quantizer_is_plain_torch_as_the_reason_says(quantizer: ast.Module) -> None:
    assert (
        "DeepSpeed's own npu backend has ZeRO++'s quantization, in plain torch"
        in TRAITS["QuantizerBuilder"].reason
    )
    classes = {node.name for node in ast.walk(quantizer) if isinstance(node, ast.ClassDef)}
    assert "QuantizerBuilder" in classes
    imported = {
        name.name for node in ast.walk(quantizer) if isinstance(node, ast.Import) for name in node.names
    }
    imported |= {
        f"{'.' * node.level}{node.module}" for node in ast.walk(quantizer) if isinstance(node, ast.ImportFrom)
    }
    assert imported <= {"torch", ".builder"}
