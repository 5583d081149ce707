# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci import check_names
from ci.tests.repository import HEADER, Repository

TOY = "packages/accel-toy/src/accel_toy"
CORE = "packages/accel-core/src/accel_core"
RULE = "a vendor's name that is used exists"
NAMES = {
    "torch.toy.is_available": {"kind": "function"},
    "torch.toy.device_count": {"kind": "function"},
    "torch.toy.Stream": {"kind": "class"},
    "torch.toy.Stream.synchronize": {"kind": "method"},
    "torch.toy.amp.autocast": {"kind": "class"},
    "torch.toy.graph": {"kind": "class", "condition": "only in lazy mode"},
    "torch.ops.toy.adam": {"kind": "function"},
    "torch_toy.contrib.fast": {"kind": "function"},
}
#: Of core: one name that the toy has, one that it lacks.
BASE = (
    "class TorchDeviceAccelerator:\n"
    "    def device_count(self):\n        return self.device_module.device_count()\n"
    "    def seed(self):\n        return self.device_module.initial_seed()\n"
)
SEED = "    def seed(self):\n        return 0\n"
CLASS_IMPORT = "from accel_core.device import TorchDeviceAccelerator\n"
CLASS = "class TOY(TorchDeviceAccelerator):\n    def __init__(self):\n        super().__init__('toy')\n"


@pytest.fixture
def toy(repository: Repository) -> Repository:
    """The repository with a vendor package `accel-toy`, core's device class, and the surface of torch.toy."""
    repository.package("accel-toy", vendor="toy")
    surface = {"vendor": "Toys", "module": "torch.toy (torch_toy)", "version": "1", "names": NAMES}
    repository.write("shared/surfaces/toy.json", json.dumps(surface))
    habana = {"module": "habana.torch.hpu", "names": {"habana.torch.hpu.device_count": {"kind": "function"}}}
    repository.write("shared/surfaces/hpu.json", json.dumps(habana))
    repository.write(f"{CORE}/torch_device.py", HEADER + BASE)
    return repository


def faults(repository: Repository) -> list[str]:
    """Line and fault of everything that is not let through."""
    return [f"{v.line}: {v.found}" for v, reason in check_names.check(repository.root) if not reason]


GOOD = [
    "torch.toy.is_available()",
    "torch.toy.Stream().synchronize()",
    "torch.toy.Stream.synchronize",
    "torch.toy.Stream.synchronize.__doc__",
    "torch.toy.amp",
    "torch_toy.toy.device_count()",
    "torch_toy.contrib.fast",
    "torch.ops.toy.adam.out",
    "torch.cos",
    "torch.cuda.nonsense",  # no surface here
    "getattr(torch.toy, 'nonsense', None)",
    "hasattr(torch.toy, 'nonsense') and torch.toy.nonsense()",
    "torch.toy.nonsense  # names: a release before 1.0 has it",
    "other.toy.nonsense",
    "FUSED_OP = 'toy.adam'",
    "def f():\n    if hasattr(torch.toy, 'Graph'):\n        return torch.toy.Graph.replay\n",
]
BAD = [
    ("torch.toy.nonsense()", "torch.toy.nonsense"),
    ("x = [torch.toy.nonsense]", "torch.toy.nonsense"),
    ("torch.toy.amp.nonsense", "torch.toy.amp.nonsense"),
    ("torch.toy.Stream.nonsense", "torch.toy.Stream.nonsense"),
    ("torch_toy.toy.nonsense", "torch.toy.nonsense"),
    ("torch_toy.nonsense", "torch_toy.nonsense"),
    ("torch.ops.toy.nonsense(1)", "torch.ops.toy.nonsense"),
    ("FUSED_OP = 'toy.nonsense'", "torch.ops.toy.nonsense"),
    ("from torch_toy import nonsense", "torch_toy.nonsense"),
    ("import torch_toy.nonsense", "torch_toy.nonsense"),
    ("from torch import toy; toy.nonsense()", "torch.toy.nonsense"),
    ("import torch_toy.contrib as c; c.nonsense()", "torch_toy.contrib.nonsense"),
    ("toy = importlib.import_module('torch_toy'); toy.toy.nonsense", "torch.toy.nonsense"),
    ("importlib.import_module('torch_toy').toy.nonsense()", "torch.toy.nonsense"),
    ("ns = torch.toy; ns.nonsense", "torch.toy.nonsense"),
    ("getattr(torch.toy, 'nonsense')", "torch.toy.nonsense"),
    ("torch.hpu.nonsense", "habana.torch.hpu.nonsense"),
    ("def g(): return torch.toy.nonsense", "torch.toy.nonsense"),
    ("x = torch.toy.graph", "torch.toy.graph"),
]


@pytest.mark.parametrize("line", GOOD)
def test_a_name_that_exists_or_is_guarded_passes(toy: Repository, line: str) -> None:
    toy.write(f"{TOY}/x.py", f"{HEADER}import torch, torch_toy, importlib\n{line}\n")
    assert faults(toy) == []


@pytest.mark.parametrize(("line", "name"), BAD)
def test_a_name_that_is_missing_is_found(toy: Repository, line: str, name: str) -> None:
    toy.write(f"{TOY}/x.py", f"{HEADER}import torch, torch_toy, importlib\n{line}\n")
    (fault,) = faults(toy)
    assert fault.startswith(f"4: {name} is ")


def test_a_guard_holds_for_its_function_alone(toy: Repository) -> None:
    guarded = (
        "def f():\n    return hasattr(torch.toy, 'nonsense')\n\n\ndef g():\n    return torch.toy.nonsense\n"
    )
    toy.write(f"{TOY}/x.py", f"{HEADER}import torch\n{guarded}")
    assert faults(toy) == ["9: torch.toy.nonsense is in no surface of torch.toy"]


def test_what_core_s_class_asks_has_to_exist_or_be_overridden(toy: Repository) -> None:
    toy.write(f"{TOY}/accelerator.py", HEADER + CLASS_IMPORT + CLASS)
    (fault,) = faults(toy)
    assert fault.startswith("4: torch.toy.initial_seed is in no surface of torch.toy, seed() of ")
    assert fault.endswith("torch_device.py:7 uses it, and TOY does not override that")
    toy.write(f"{TOY}/accelerator.py", HEADER + CLASS_IMPORT + CLASS + SEED)
    assert faults(toy) == []


def test_core_s_class_may_be_imported_from_its_top(toy: Repository) -> None:
    toy.write(f"{TOY}/accelerator.py", f"{HEADER}from accel_core import TorchDeviceAccelerator\n{CLASS}")
    assert len(faults(toy)) == 1


def test_an_override_that_asks_core_s_method_is_none(toy: Repository) -> None:
    toy.write(
        f"{TOY}/accelerator.py",
        HEADER + CLASS_IMPORT + CLASS + "    def seed(self):\n        return super().seed()\n",
    )
    assert len(faults(toy)) == 1


def test_a_base_in_the_package_overrides_too(toy: Repository) -> None:
    toy.write(f"{TOY}/seeds.py", f"{HEADER}class Seeds:\n{SEED}")
    toy.write(
        f"{TOY}/accelerator.py",
        f"{HEADER}from accel_toy.seeds import Seeds\n{CLASS_IMPORT}"
        + CLASS.replace("(Torch", "(Seeds, Torch"),
    )
    assert faults(toy) == []


def test_a_line_of_core_can_say_why_a_name_may_be_missing(toy: Repository) -> None:
    toy.write(f"{TOY}/accelerator.py", HEADER + CLASS_IMPORT + CLASS)
    said = BASE.replace(
        "        return self.device_module.initial",
        "        # names: nobody calls it\n        return self.device_module.initial",
    )
    toy.write(f"{CORE}/torch_device.py", HEADER + said)
    assert [reason for _, reason in check_names.check(toy.root)] == ["nobody calls it"]


def test_the_namespace_is_the_one_that_the_class_gives(toy: Repository) -> None:
    own = CLASS.replace("'toy')", "'toy', namespace=module)")
    body = "    def x(self):\n        return self.device_module.nonsense\n"
    toy.write(
        f"{TOY}/accelerator.py", f"{HEADER}{CLASS_IMPORT}import habana.torch.hpu as module\n{own}{SEED}{body}"
    )
    assert faults(toy) == ["11: habana.torch.hpu.nonsense is in no surface of habana"]


def test_a_base_in_core_overrides_too(toy: Repository) -> None:
    one = f"from accel_core.device import TorchDeviceAccelerator\nclass One(TorchDeviceAccelerator):\n{SEED}"
    toy.write(f"{CORE}/one.py", HEADER + one)
    kind = CLASS.replace("(Torch", "(one.One, Torch")
    toy.write(f"{TOY}/accelerator.py", f"{HEADER}from accel_core import one\n{CLASS_IMPORT}{kind}")
    assert faults(toy) == []


def test_a_class_on_another_of_its_name_is_told_apart(toy: Repository) -> None:
    toy.write(f"{TOY}/accelerator.py", HEADER + CLASS_IMPORT + CLASS + SEED)
    late = "from accel_toy import accelerator\nclass TOY(accelerator.TOY):\n    x = 1\n"
    toy.write(f"{TOY}/late/accelerator.py", HEADER + late)
    assert faults(toy) == []
    toy.write(f"{TOY}/accelerator.py", HEADER + CLASS_IMPORT + CLASS)
    assert len(faults(toy)) == 2


def test_a_module_of_the_package_can_stand_before_the_device_module(toy: Repository) -> None:
    shaped = "import torch\ndef __getattr__(name):\n    return getattr(torch.toy, name)\n"
    own = CLASS.replace("'toy')", "'toy', namespace=runtime)")
    toy.write(f"{TOY}/accelerator.py", f"{HEADER}from accel_toy import runtime\n{CLASS_IMPORT}{own}")
    toy.write(f"{TOY}/runtime.py", HEADER + shaped)
    (fault,) = faults(toy)
    assert "torch.toy.initial_seed is in no surface" in fault
    toy.write(f"{TOY}/runtime.py", f"{HEADER}{shaped}def initial_seed(): ...\n")
    assert faults(toy) == []


def test_faults_end_the_program_with_1(toy: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_names.main([], toy.root) == 0
    toy.write(f"{TOY}/x.py", f"{HEADER}import torch\ntorch.toy.nonsense\n")
    assert check_names.main([], toy.root) == 1
    assert (
        f"{TOY}/x.py:4: {RULE}: torch.toy.nonsense is in no surface of torch.toy" in capsys.readouterr().out
    )


def test_without_surfaces_nothing_passes(repository: Repository) -> None:
    assert check_names.main([], repository.root) == 2


def test_this_repository_passes() -> None:
    root = Path(__file__).resolve().parents[2]
    assert [str(violation) for violation, reason in check_names.check(root) if not reason] == []
