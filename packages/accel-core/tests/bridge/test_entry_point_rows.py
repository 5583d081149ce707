# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the truth table through real entry points: who is chosen, and that no runtime below is imported.

Each row has an interpreter of its own that sees accel_core, what it needs and ten pretended vendor packages,
and nothing else of this environment: no torch, no deepspeed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import packaging
import pytest
import wrapt

import accel_core

#: label: key, variant, priority, slot, keys it yields to. Written here once more, apart from core's table.
_CANDIDATES = {
    "external": ("xpu.external", "", 1000, "", ()),
    "ipex": ("xpu", "ipex", 900, "", ()),
    "native": ("xpu", "native", 800, "", ("cuda",)),
    "npu": ("npu", "", 700, "npu", ()),
    "sdaa": ("sdaa", "", 600, "sdaa", ()),
    "mps": ("mps", "", 500, "", ()),
    "hpu": ("hpu", "", 400, "", ()),
    "mlu": ("mlu", "", 300, "mlu", ()),
    "cuda": ("cuda", "", 200, "", ()),
    "cpu": ("cpu", "", 0, "", ()),
}
_VENDOR = """
import json, os
from accel_core.vendor import Confirmation, Evidence, Vendor

VENDOR = Vendor(key={key!r}, interface=2, accelerator="{module}.accelerator:Fake", probe="{module}.vendor",
                priority={priority}, distribution="fake-{label}", requires="its runtime",
                variant={variant!r}, privateuse1={slot!r}, yields_to={yields!r})
state = json.loads(os.environ["FAKE_STATES"]).get({label!r}, "absent")

def evidence():
    return Evidence(state != "absent", False if state in ("absent", "no node") else None, state)

def confirm():
    from {module} import runtime
    return Confirmation(runtime.count, state)
"""
_RUNTIME = """
import builtins, torch
from {module}.vendor import VENDOR, state

torch.asked.append({label!r})
torch._C.slot = VENDOR.privateuse1 or torch._C.slot
if hasattr(builtins, state):
    raise getattr(builtins, state)("the runtime of {label} is broken")
count = 0 if state == "no device" else 2
"""
_ACCELERATOR = """
from accel_core import DeepSpeedAccelerator

methods = {name: lambda self, *a, **k: None for name in DeepSpeedAccelerator.__abstractmethods__}
Fake = type("Fake", (DeepSpeedAccelerator,), methods | {"__module__": __name__})
"""
#: As much of torch as core asks for, who holds the one PrivateUse1 slot, and a list that runtimes sign.
_TORCH = """
asked = []

class _C:
    slot = "privateuseone"
    _get_privateuse1_backend_name = classmethod(lambda cls: cls.slot)
"""
_CHILD = """
import json, sys, accel_core
try:
    chosen = type(accel_core.get_accelerator()).__module__
except accel_core.AccelError as error:
    chosen = f"fake_{error.code}."
asked = getattr(sys.modules.get("torch"), "asked", [])
loaded = [name.split(".") for name in sys.modules if name.startswith("fake_")]
beyond = {path[0] for path in loaded if path[1:] not in ([], ["vendor"])}
print(json.dumps([chosen.partition(".")[0], asked, sorted(beyond)]))
"""


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An import path with core and the ten vendors, installed as pip leaves them."""
    site = tmp_path_factory.mktemp("site")
    for needed in (accel_core, packaging, wrapt):
        (site / needed.__name__).symlink_to(Path(str(needed.__file__)).parent)
    (site / "torch.py").write_text(_TORCH)
    for label, (key, variant, priority, slot, yields) in _CANDIDATES.items():
        module = f"fake_{label}"
        names: dict[str, Any] = {"module": module, "label": label, "key": key, "variant": variant}
        names |= {"priority": priority, "slot": slot, "yields": yields}
        (site / module).mkdir()
        (site / module / "__init__.py").touch()
        (site / module / "vendor.py").write_text(_VENDOR.format(**names))
        (site / module / "runtime.py").write_text(_RUNTIME.format(**names))
        (site / module / "accelerator.py").write_text(_ACCELERATOR)
        metadata = site / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fake-{label}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[accel.vendors]\n{label} = {module}.vendor:VENDOR\n")
    return site


@dataclass(frozen=True)
class Row:
    """A machine, what the user set, and what must come of it: the runtimes asked, in order."""

    name: str
    states: dict[str, str]
    winner: str
    asked: str
    env: dict[str, str] = field(default_factory=dict)


def _present(*labels: str, **others: str) -> dict[str, str]:
    return {**dict.fromkeys((*labels, "cpu"), "present"), **others}


#: What real runtimes raise when their driver is missing or too old.
_CRASHES = (
    "ImportError",
    "RuntimeError",
    "AssertionError",
    "AttributeError",
    "OSError",
    "FileNotFoundError",
    "SystemExit",
)
_XPU = {"DS_ACCELERATOR": "xpu"}
_ALL = _present(*_CANDIDATES)
_ROWS = [
    Row("nothing but the CPU", _present(), "cpu", "cpu"),
    Row("everything", _ALL, "external", "external"),
    Row("both variants of xpu, and cuda", _present("ipex", "native", "cuda"), "ipex", "ipex"),
    Row("native xpu alone", _present("native"), "native", "native"),
    Row("native xpu yields to cuda", _present("native", "cuda"), "cuda", "native cuda"),
    Row("native xpu, cuda without a card", _present("native", cuda="no device"), "native", "native cuda"),
    Row("native xpu, cuda broken", _present("native", cuda="RuntimeError"), "native", "native cuda"),
    Row("npu above mlu and cuda", _present("npu", "mlu", "cuda"), "npu", "npu"),
    Row("npu wheel without a device node", _present("sdaa", npu="no node"), "sdaa", "sdaa"),
    Row("sdaa above mps and hpu", _present("sdaa", "mps", "hpu"), "sdaa", "sdaa"),
    Row("mps above hpu", _present("mps", "hpu"), "mps", "mps"),
    Row("hpu above cuda", _present("hpu", "cuda"), "hpu", "hpu"),
    Row("mlu above cuda", _present("mlu", "cuda"), "mlu", "mlu"),
    Row("cuda alone", _present("cuda"), "cuda", "cuda"),
    Row("hpu wheel without a card", _present("cuda", hpu="no device"), "cuda", "hpu cuda"),
    Row("every wheel, no card", dict.fromkeys(_CANDIDATES, "no node") | _present(), "cpu", "cpu"),
    Row("external broken, ipex idle", _present(external="OSError", ipex="no device"), "cpu", "external ipex cpu"),
    *(Row(f"hpu fails with {error}", _present("cuda", hpu=error), "cuda", "hpu cuda") for error in _CRASHES),
    Row("npu broken after it claimed the slot", _present("sdaa", "mlu", "cuda", npu="OSError"), "cuda", "npu cuda"),
    Row("npu without a card holds the slot", _present("sdaa", "mps", npu="no device"), "mps", "npu mps"),
    Row("the same, skipped", _present("sdaa", npu="OSError"), "sdaa", "sdaa", {"ACCEL_SKIP": "npu"}),
    Row("cuda asked for below npu", _present("npu", "cuda"), "cuda", "cuda", {"DS_ACCELERATOR": "cuda"}),
    Row("cpu asked for below all", _ALL, "cpu", "cpu", {"DS_ACCELERATOR": "cpu"}),
    Row("native xpu asked for beside cuda", _present("native", "cuda"), "native", "native", _XPU),
    Row("xpu asked for, ipex broken", _present("native", ipex="OSError"), "native", "ipex native", _XPU),
    Row("npu asked for on a login node", _present("cuda", npu="no device"), "npu", "npu", {"DS_ACCELERATOR": "npu"}),
    Row("npu asked for, no runtime", _present("cuda"), "ACC-202", "", {"DS_ACCELERATOR": "npu"}),
    Row("npu asked for, broken", _present("cuda", npu="SystemExit"), "ACC-203", "npu", {"DS_ACCELERATOR": "npu"}),
    Row("nonsense asked for", _ALL, "ACC-201", "", {"DS_ACCELERATOR": "tpu"}),
    Row("nothing asked for", _ALL, "ACC-201", "", {"DS_ACCELERATOR": ""}),
    Row("strict, nothing but the CPU", _present(), "ACC-205", "cpu", {"ACCEL_STRICT": "1"}),
    Row("strict, hpu broken", _present("cuda", hpu="OSError"), "ACC-205", "hpu cuda", {"ACCEL_STRICT": "1"}),
    Row("strict, cuda clean", _present("cuda"), "cuda", "cuda", {"ACCEL_STRICT": "1"}),
]  # fmt: skip


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_the_right_one_is_chosen_and_nothing_below_it_imported(
    children: Any, machine: Path, row: Row
) -> None:
    child = children.start(_CHILD, [machine], ["-S"], FAKE_STATES=json.dumps(row.states), **row.env)
    chosen, asked, loaded = children.finish(child).expect_success().report
    assert chosen == f"fake_{row.winner}"
    assert asked == row.asked.split()
    # Of everyone else nothing but the record is in sys.modules; a runtime that failed is not there any more.
    working = {label for label in asked if row.states[label] in ("present", "no device")}
    assert loaded == sorted(f"fake_{label}" for label in working)
