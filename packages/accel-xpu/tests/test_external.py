# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel Extension for DeepSpeed: its class is read, and not used unless it has every method."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from accel_core.errors import NotAnAccelerator
from accel_sim import surface
from accel_xpu import external

pytestmark = pytest.mark.upstream

PACKAGE = "intel_extension_for_deepspeed"
#: What DeepSpeed's interface asked for since 0.9.4 was written.
SINCE = {
    "available_memory", "capture_to_graph", "create_graph", "export_envs", "get_compile_backend",
    "handles_memory_backpressure", "is_triton_supported", "replay_graph", "resolves_data_dependency",
    "set_compile_backend", "set_visible_devices_envs", "supported_dtypes", "use_host_timers",
    "visible_devices_envs",
}  # fmt: skip


Write = Callable[..., None]


@pytest.fixture
def release(install: Any) -> Write:
    """`release("1.0", ["device_name"])`: a release whose class has these methods."""

    def write(version: str, methods: Iterable[str], bases: str = "DeepSpeedAccelerator") -> None:
        module: Path = install(PACKAGE, "from .xpu_accelerator import XPU_Accelerator", version=version)
        body = "".join(f"    def {name}(self): ...\n" for name in methods)
        module.with_name("xpu_accelerator.py").write_text(
            "import intel_extension_for_pytorch\n"
            "from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator\n"
            f"class XPU_Accelerator({bases}):\n    kind = 'xpu'\n{body}"
        )

    return write


def missing() -> list[str]:
    """The methods that the error names."""
    with pytest.raises(NotAnAccelerator) as raised:
        external.evidence()
    names: list[str] = raised.value.found.partition("methods: ")[2].split(", ")
    assert f"lacks {len(names)} methods" in raised.value.found
    assert "pip uninstall" in raised.value.do
    return names


def test_release_0_9_4_can_not_serve_and_its_missing_methods_are_named(release: Write) -> None:
    recorded = surface.load(PACKAGE).children(f"{PACKAGE}.XPU_Accelerator")
    release("0.9.4", recorded)
    names = set(missing())
    assert names >= SINCE
    assert not names & recorded.keys()


def test_complete_class_depends_on_ipex(release: Write, tmp_path: Path) -> None:
    release("1.0", [])
    demanded = missing()
    shutil.rmtree(tmp_path / PACKAGE)
    shutil.rmtree(tmp_path / f"{PACKAGE}-1.0.dist-info")
    release("1.1", demanded)
    assert "1.1; intel_extension_for_pytorch is not installed" in external.evidence().reason


@pytest.mark.parametrize("bases", ["Common", "DeepSpeedAccelerator, Common"])
def test_class_with_other_bases_is_left_to_its_construction(bases: str, release: Write) -> None:
    release("1.0", ["device_name"], bases)
    assert "1.0; intel_extension_for_pytorch is not installed" in external.evidence().reason


def test_without_deepspeed_there_is_nothing_to_derive_from(
    release: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    release("0.9.4", [])
    monkeypatch.setattr(external, "deepspeed_folder", lambda: None)
    evidence = external.evidence()
    assert not evidence.runtime
    assert "deepspeed is not" in evidence.reason
