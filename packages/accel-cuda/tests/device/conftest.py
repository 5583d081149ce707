# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The emulated driver, and a wheel with images for it."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_cuda.kernels import compiled_here, images
from accel_ops import routes
from accel_ops.routes import ARGUMENTS
from accel_sim.driver import emulated


def wheel(folder: Path, contents: dict[str, bytes]) -> None:
    """Write images as the build of the wheel does."""
    table = {}
    for name, content in contents.items():
        (folder / f"{name}.cubin").write_bytes(content)
        table[name] = {"file": f"{name}.cubin", "sha256": hashlib.sha256(content).hexdigest()}
    (folder / images.TABLE).write_text(json.dumps({"images": table}))


def stand_ins(*architectures: int, kernels: Iterable[str] = ARGUMENTS) -> dict[str, bytes]:
    return {f"sm_{number}": emulated.stand_in(number, kernels) for number in architectures}


#: Flags of the driver's compiler: ../test_kernels.py sets some for this process.
FLAGS = tuple(os.environ.get("ACCEL_TEST_FLAGS", "").split())


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    routes.tried.cache_clear()
    yield
    routes.tried.cache_clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two H100 with CUDA's driver 12.8, and a wheel with images. Returns the emulated driver."""
    monkeypatch.setattr(images, "FOLDER", tmp_path)
    monkeypatch.setattr(compiled_here, "_PACKAGES", ())
    wheel(tmp_path, stand_ins(75, 80, 90, 100, 120))
    driver = emulated.load(emulated.LIBCUDA, flags=FLAGS)
    driver.accel_driver_set(torch.cuda.device_count(), 12080, 90)
    return driver
