# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Probe for the accelerator class of Intel Extension for DeepSpeed.

Its only release, 0.9.4, lacks methods that DeepSpeed's interface has gained since. The sources are read to find
that out, because importing it needs two more packages, and imports DeepSpeed during a selection.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from accel_core.errors import NotAnAccelerator
from accel_core.vendor import (
    Confirmation,
    Evidence,
    deepspeed_folder,
    distribution_version,
    known_device,
    module_exists,
)
from accel_xpu.ipex import probe as ipex

MODULE = known_device("xpu.external").runtime
_CLASS = "XPU_Accelerator"
_BASE = "DeepSpeedAccelerator"


def evidence() -> Evidence:
    """Check both packages' sources and IPEX; raises NotAnAccelerator with the names of all missing methods."""
    if not module_exists(MODULE):
        return Evidence(False, None, f"{MODULE} is not installed")
    version = distribution_version(MODULE) or "of unknown version"
    deepspeed = deepspeed_folder()
    if deepspeed is None:
        return Evidence(False, None, f"{MODULE} {version} is installed, deepspeed is not")
    if missing := _missing(deepspeed):
        raise NotAnAccelerator(
            f"{MODULE} {version} cannot be used with deepspeed {distribution_version('deepspeed')}: its "
            f"{_CLASS} lacks {len(missing)} methods: {', '.join(missing)}",
            do=f"pip uninstall {MODULE}: accel-xpu serves XPU without it",
        )
    below = ipex.evidence()
    return Evidence(below.runtime, below.hardware, f"{MODULE} {version}; {below.reason}")


def confirm() -> Confirmation:
    """Count devices with IPEX, which the class uses."""
    return ipex.confirm()


def _missing(deepspeed: Path) -> list[str]:
    """Return the abstract methods of DeepSpeed's interface that Intel's class does not implement.

    Empty if the sources do not show it; constructing the class then fails.
    """
    spec = importlib.util.find_spec(MODULE)
    base = _class(deepspeed / "accelerator" / "abstract_accelerator.py", _BASE)
    cls = _class(Path((spec and spec.origin) or "").with_name("xpu_accelerator.py"), _CLASS)
    if base is None or cls is None or [ast.unparse(parent) for parent in cls.bases] != [_BASE]:
        return []
    abstract = {name for name, method in _methods(base).items() if _is_abstract(method)}
    return sorted(abstract - _methods(cls).keys())


def _class(source: Path, name: str) -> ast.ClassDef | None:
    try:
        tree = ast.parse(source.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    return classes[0] if classes else None


def _methods(cls: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in cls.body if isinstance(node, ast.FunctionDef)}


def _is_abstract(method: ast.FunctionDef) -> bool:
    return any("abstractmethod" in ast.unparse(decorator) for decorator in method.decorator_list)
