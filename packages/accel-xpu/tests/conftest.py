# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Machines with Intel's devices."""

import os
from collections.abc import Callable, Iterator

import pytest

from accel_ops import routes
from accel_testkit.fake_runtime import FakeRuntime


@pytest.fixture
def render_node(fake_runtime: FakeRuntime) -> Callable[[str], None]:
    """`render_node("0x8086")`: a machine with one GPU, of that PCI vendor; none for an empty text."""
    vendor_file = "sys/class/drm/renderD128/device/vendor"

    def plug(vendor: str) -> None:
        fake_runtime.device("dev/dri/renderD128", *([vendor_file] if vendor else []))
        if vendor:
            (fake_runtime.root / vendor_file).write_text(f"{vendor}\n")

    return plug


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    """Kernels are tried once a process; each test is one."""
    routes.tried.cache_clear()
    yield
    routes.tried.cache_clear()


@pytest.fixture(autouse=True)
def no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """The surrounding shell chooses no device."""
    monkeypatch.delenv("ZE_AFFINITY_MASK", raising=False)


#: Elsewhere test_kernels.py runs them.
collect_ignore = [] if "ACCEL_XPU_RUNTIME" in os.environ else ["spirv"]
