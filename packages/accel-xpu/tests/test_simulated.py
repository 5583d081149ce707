# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""On a simulated device: the selection among the three variants."""

import json
from typing import Any

import pytest

from accel_sim import surface
from shared.children import on_device

#: Each case selects in a fork of one process that has imported torch.
SELECT = """
import json, os, sys, torch, accel_core
for folder in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork():
        assert os.wait()[1] == 0
        continue
    sys.path.insert(0, folder)
    accelerator = accel_core.get_accelerator()
    said = accel_core.explain()
    candidates = {f.label: [f.state.value, f.reason] for f in said.candidates}
    print(json.dumps([type(accelerator).__module__, candidates]), flush=True)
    os._exit(0)
"""
IPEX = "intel_extension_for_pytorch"
EXTERNAL = "intel_extension_for_deepspeed"
CLASS = (
    "from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator\n"
    f"import {IPEX}\n"
    "class XPU_Accelerator(DeepSpeedAccelerator):\n"
)
SOURCES = {
    "nothing": {},
    "ipex": {IPEX: "__version__ = '2.8.10'\nclass _C:\n    _has_xpu = staticmethod(lambda: True)\n"},
    "ipex-other-torch": {IPEX: "import os\nos.exit(127)\n"},
    "ipex-for-cpus": {IPEX: "class _C:\n    _has_xpu = staticmethod(lambda: False)\n"},
    "external-0.9.4": {
        EXTERNAL: "from .xpu_accelerator import XPU_Accelerator\n",
        f"{EXTERNAL}/xpu_accelerator.py": CLASS
        + "".join(
            f"    def {name}(self): ...\n"
            for name in surface.load(EXTERNAL).children(f"{EXTERNAL}.XPU_Accelerator")
        ),
    },
}
SOURCES["external-0.9.4-and-ipex"] = SOURCES["external-0.9.4"] | SOURCES["ipex"]


@pytest.fixture(scope="module")
def selections(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The class that is chosen and the candidates, by what is installed."""
    root = tmp_path_factory.mktemp("machines")
    for machine, sources in SOURCES.items():
        (root / machine).mkdir()
        for name, text in sources.items():
            path = root / machine / (name if name.endswith(".py") else f"{name}/__init__.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    done = on_device("xpu", "-c", SELECT, *(root / machine for machine in SOURCES))
    return dict(zip(SOURCES, map(json.loads, done.out.splitlines()), strict=True))


@pytest.mark.parametrize(
    ("machine", "module", "variant", "state", "reported"),
    [
        ("nothing", "accel_xpu.accelerator", "xpu (native)", "chosen", "torch.xpu counts 2"),
        ("nothing", "accel_xpu.accelerator", "xpu (ipex)", "absent", "is not installed"),
        ("ipex", "accel_xpu.ipex.accelerator", "xpu (ipex)", "chosen", "counts 2"),
        ("ipex", "accel_xpu.ipex.accelerator", "xpu (native)", "outranked", "built with XPU"),
        ("ipex-other-torch", "accel_xpu.accelerator", "xpu (ipex)", "broken", "has no attribute 'exit'"),
        ("ipex-for-cpus", "accel_xpu.accelerator", "xpu (ipex)", "absent", "build for CPUs"),
        ("external-0.9.4", "accel_xpu.accelerator", "xpu.external", "broken", "create_graph"),
        ("external-0.9.4-and-ipex", "accel_xpu.ipex.accelerator", "xpu.external", "broken", "use_host_timers"),
    ],
)  # fmt: skip
@pytest.mark.upstream
def test_road_that_works_is_taken_and_each_other_is_explained(
    selections, machine, module, variant, state, reported
):
    chosen, candidates = selections[machine]
    assert chosen == module
    assert candidates[variant][0] == state
    assert reported in candidates[variant][1]
