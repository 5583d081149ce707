# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Detection of the device compiler for this torch, without starting it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch

_HOMES = ("CUDA_HOME", "CUDA_PATH")
_ROCM_HOMES = ("ROCM_HOME", "ROCM_PATH")
_USUAL = "/usr/local/cuda"
_USUAL_ROCM = "/opt/rocm"  # house: where AMD's installer puts it


def lack() -> str:
    """Return why device sources cannot be compiled here; empty if they can."""
    if torch.version.hip:
        return _lack_of("hipcc", [*map(os.environ.get, _ROCM_HOMES), _USUAL_ROCM])[1]
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    home, missing = _lack_of("nvcc", [*map(os.environ.get, _HOMES), _USUAL])
    return missing or _mismatch(home, torch.version.cuda)


def _lack_of(compiler: str, homes: list[str | None]) -> tuple[Path, str]:
    """Return the toolkit's folder, and the reason if it is missing."""
    for home in filter(None, homes):
        if (Path(home) / "bin" / compiler).is_file():
            return Path(home), ""
    found = shutil.which(compiler)
    if found is None:
        return Path(), f"{compiler} is not on PATH" + "".join(f", nor in {home}" for home in homes if home)
    return Path(found).resolve().parents[1], ""


def _mismatch(home: Path, built_with: str) -> str:
    # Libraries of another major version of CUDA cannot be loaded together with this torch.
    try:
        installed = str(json.loads((home / "version.json").read_text())["cuda"]["version"])
    except (OSError, ValueError, KeyError):
        return ""
    if installed.partition(".")[0] == built_with.partition(".")[0]:
        return ""
    return f"{home} is CUDA {installed}, torch {torch.__version__} is built with CUDA {built_with}"
