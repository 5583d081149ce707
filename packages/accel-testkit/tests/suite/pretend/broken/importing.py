# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Import cost and order: packages that do too much, too early, or only after somebody else."""

from __future__ import annotations

import pytest

from broken import Site, breaks

_CLASS = "class GOOD_Accelerator(TorchDeviceAccelerator):"
_CONSTRUCTED = "        self._pinned: dict[int, int] = {}  # first address -> the one after the last\n"
_ASKED = '    """Nothing has to be looked for."""\n'


@breaks("package.step_of_loading_does_its_work_only[package]", started="report")
def package_imports_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("__init__.py", "", "import torch\n")


@breaks("package.step_of_loading_does_its_work_only[record]", started="report")
def record_imports_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("vendor.py", "", "import torch\n")


@breaks("package.step_of_loading_does_its_work_only[evidence]", started="report")
def evidence_imports_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", _ASKED, _ASKED + "    import torch\n")


@breaks("package.step_of_loading_does_its_work_only[package]", started="report")
def package_forgets_core(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["accel_good/__init__.py"] = ""


@breaks("package.step_of_loading_does_its_work_only[class]", started="report")
def class_imports_deepspeed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stub: the real one would ask for the accelerator that is just being made.
    site.files["deepspeed/__init__.py"] = ""
    site.edit("accelerator.py", "from accel_good.op_builder", "import deepspeed\nfrom accel_good.op_builder")


@breaks("package.environment_stays", started="report")
def every_step_sets_a_variable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_every_step(site, 'os.environ["GOOD_{}"] = "1"')


@breaks("package.step_of_loading_does_its_work_only", started="report")
def every_step_prints(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_every_step(site, 'os.write(1, b"{}")')


def _in_every_step(site: Site, line: str) -> None:
    for path, name in (("__init__.py", "PACKAGE"), ("vendor.py", "RECORD")):
        site.edit(path, "", f"import os\n{line.format(name)}\n")
    site.edit("probe.py", _ASKED, f"{_ASKED}    import os\n    {line.format('EVIDENCE')}\n")
    site.edit("accelerator.py", _CLASS, f"import os\n{line.format('CLASS')}\n\n\n{_CLASS}")
    site.edit("accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        {line.format('CONSTRUCTION')}\n")


@breaks("package.settings_of_torch_stay[class] package.environment_stays[class]", started="report")
def class_changes_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """This setting of torch sets a variable too."""
    site.edit("accelerator.py", _CLASS, f"torch.use_deterministic_algorithms(True)\n\n\n{_CLASS}")


@breaks(
    "package.settings_of_torch_stay[construction] package.environment_stays[construction]",
    "package.step_of_loading_does_its_work_only[construction]",
    started="report",
)
def constructor_changes_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is on hpu, which has to declare it; torch imports its compiler then, with settings of its own."""
    site.edit(
        "accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        torch.use_deterministic_algorithms(True)\n"
    )


@breaks("package.step_of_loading_does_its_work_only", started="report")
def every_step_changes_the_process(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_every_step(site, 'import sys; sys.excepthook = lambda *e, at="{}": None')


@breaks("package.step_of_loading_does_its_work_only[construction]", started="report")
def constructor_hides_warnings(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    hide = '__import__("warnings").filterwarnings("ignore", "nothing of ours")'
    site.edit("accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        {hide}\n")


@breaks("package.step_of_loading_does_its_work_only[construction]", started="report")
def constructor_redirects_a_function_of_torch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "torch.Tensor.cuda = torch.Tensor.cpu"
    site.edit("accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        {line}\n")


@breaks("package.step_of_loading_does_its_work_only[construction]", started="report")
def constructor_takes_a_signal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    line = '__import__("signal").signal(2, lambda *ignored: None)'
    site.edit("accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        {line}\n")


@breaks("package.step_of_loading_does_its_work_only[construction]", started="report")
def constructor_needs_another_import(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was on mlu."""
    site.edit("accelerator.py", _CONSTRUCTED, f"{_CONSTRUCTED}        torch.good.init()\n")


@breaks("package.step_of_loading_does_its_work_only[class]", started="report")
def class_swallows_an_import(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was on npu and sdaa."""
    text = "try:\n    import torch_good\nexcept ImportError:\n    pass\n\nDEVICES = torch_good.device_count()\n\n\n"
    site.edit("accelerator.py", _CLASS, text + _CLASS)


@breaks("package.step_of_loading_does_its_work_only[evidence]", started="report")
def evidence_raises(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("probe.py", _ASKED, f'{_ASKED}    raise FileNotFoundError("version.info")\n')


@breaks(
    "package.step_of_loading_does_its_work_only[package]",
    "package.step_of_loading_does_its_work_only[record]",
    started="report",
)
def package_raises(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("__init__.py", "", 'raise ImportError("libgood.so: cannot open shared object file")\n')
