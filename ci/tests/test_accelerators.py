# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What an accelerator class asks of its device module is what it has not overridden."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.stubs import accelerators, inherited
from ci.tests.repository import HEADER, Repository

CORE = "packages/accel-core/src/accel_core"
TOY = "packages/accel-toy/src/accel_toy"
BASE = (
    "class TorchDeviceAccelerator:\n"
    "    def device_count(self):\n        return self.device_module.device_count()\n"
    "    def seed(self, seed):\n        return self.device_module.manual_seed(seed, hard=True)\n"
    "    @property\n    def Event(self):\n        return self.device_module.Event\n"
    "    def lazy(self):\n        return cast(LazyCalls, self.device_module)._lazy_call()\n"
    "    def graph(self):\n        return cast(GraphModule, self.device_module).graph()\n"
)
ALL = ["module.Event", "module._lazy_call()", "module.device_count()", "module.manual_seed(_, hard=_)"]
IMPORT = "from accel_core.device import TorchDeviceAccelerator\n"
CLASS = "class TOY(TorchDeviceAccelerator):\n    def __init__(self):\n        super().__init__('toy')\n"
SEED = "    def seed(self, seed):\n        return 0\n"


@pytest.fixture
def toy(repository: Repository) -> Repository:
    """The repository with a vendor package `accel-toy`, and core's device class."""
    repository.package("accel-toy", vendor="toy")
    repository.write(f"{CORE}/device/torch_device.py", HEADER + BASE)
    return repository


def asked(repository: Repository, *parts: str) -> list[str]:
    """The calls that the class in accelerator.py, made of these parts, inherits."""
    repository.write(f"{TOY}/accelerator.py", HEADER + IMPORT + "".join(parts))
    text = inherited.files(repository.root)[inherited.FOLDER / "accel_toy.py"]
    return [line.strip() for line in text.partition("def calls")[2].splitlines()[1:]]


def module(repository: Repository, given: str) -> str:
    """The device module of a class that gives this one."""
    repository.write(
        f"{TOY}/accelerator.py",
        f"{HEADER}{IMPORT}import torch_toy\nfrom accel_toy import runtime\nfrom habana.torch import toy\n"
        + CLASS.replace("'toy')", f"'toy', device_module={given})"),
    )
    (found,) = accelerators.find(repository.root / TOY, repository.root / CORE)
    return found.device_module


def test_every_call_of_core_s_class_is_inherited_in_its_shape(toy: Repository) -> None:
    assert asked(toy, CLASS) == ALL


def test_what_a_class_overrides_is_not_asked(toy: Repository) -> None:
    assert asked(toy, CLASS, SEED) == ALL[:3]


def test_an_override_that_asks_core_s_method_is_none(toy: Repository) -> None:
    assert asked(toy, CLASS, SEED.replace("return 0", "return super().seed(seed)")) == ALL


def test_what_the_vendor_s_own_methods_ask_counts(toy: Repository) -> None:
    own = "    def more(self):\n        return self.device_module.more(1)\n"
    assert asked(toy, CLASS, own) == sorted([*ALL, "module.more(_)"])


def test_an_attribute_overrides_too(toy: Repository) -> None:
    assert asked(toy, CLASS, "    seed = None\n") == ALL[:3]


def test_a_base_in_the_package_overrides_too(toy: Repository) -> None:
    toy.write(f"{TOY}/seeds.py", f"{HEADER}class Seeds:\n{SEED}")
    mixed = CLASS.replace("(Torch", "(Seeds, Torch")
    assert asked(toy, "from accel_toy.seeds import Seeds\n", mixed) == ALL[:3]


def test_a_base_in_core_overrides_too(toy: Repository) -> None:
    imports = IMPORT.replace("device", "device.torch_device", 1)
    toy.write(f"{CORE}/device/one.py", f"{HEADER}{imports}class One(TorchDeviceAccelerator):\n{SEED}")
    mixed = CLASS.replace("(Torch", "(One, Torch")
    assert asked(toy, "from accel_core.device.one import One\n", mixed) == ALL[:3]


def test_a_class_on_another_of_its_name_is_told_apart(toy: Repository) -> None:
    late = f"{HEADER}from accel_toy import accelerator\nclass TOY(accelerator.TOY):\n    x = 1\n"
    toy.write(f"{TOY}/late/accelerator.py", late)
    assert asked(toy, CLASS, SEED) == ALL[:3]
    assert set(inherited.files(toy.root)) == {
        Path("inherited_calls", f"accel_toy{end}.py") for end in ("", "_late")
    }


@pytest.mark.parametrize(
    "given", ["torch_toy.toy", "cast(DeviceModule, torch_toy.toy)", "runtime.made(torch_toy.toy)"]
)
def test_the_device_module_is_the_one_that_the_class_gives(toy: Repository, given: str) -> None:
    assert module(toy, given) == "torch_toy.toy"


def test_names_of_a_file_s_imports_are_resolved(toy: Repository) -> None:
    assert module(toy, "toy") == "habana.torch.toy"
    assert module(toy, "cast(DeviceModule, runtime)") == "accel_toy.runtime"


def test_without_one_it_is_torch_s(toy: Repository) -> None:
    toy.write(f"{TOY}/accelerator.py", HEADER + IMPORT + CLASS)
    (found,) = accelerators.find(toy.root / TOY, toy.root / CORE)
    assert found.device_module == "torch.toy"


def test_every_vendor_here_is_looked_at() -> None:
    root = Path(__file__).parents[2]
    found = {path.stem for path in inherited.files(root)}
    vendors = {f"accel_{key}" for key in ("cpu", "cuda", "hpu", "mlu", "mps", "npu", "sdaa", "xpu")}
    assert found == vendors | {"accel_xpu_ipex"}
