# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages and classes: missing methods, other call shapes, imports that do too much or too early."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import pytest
from accel_good.accelerator import GOOD_Accelerator
from accel_good.traits import TRAITS

from accel_core.vendor import Confirmation, Evidence, Support, Trait
from broken import EVERYTHING, SHAPES, Site, breaks, broken


@breaks(EVERYTHING)
class ConstructorFails(GOOD_Accelerator):
    def __init__(self) -> None:
        raise OSError("libgood.so: cannot open shared object file")


@breaks(EVERYTHING, "identity.is_an_accelerator")
class NotAnAccelerator:
    """Has the names, and derives from nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(GOOD_Accelerator(), name)


@breaks("identity.can_be_constructed_again answers.each_compile_backend_can_be_set")
class Singleton(GOOD_Accelerator):
    _only: Any = None

    def __new__(cls) -> Any:
        cls._only = cls._only or super().__new__(cls)
        return cls._only


def _absent(name: str) -> property:
    def get(self: Any) -> Any:
        raise AttributeError(name)

    return property(get)


@breaks(
    *SHAPES,
    "identity.has_every_method memory.each_device_has_its_figures[memory_reserved]",
    "answers.answer_has_its_type[memory_cached] answers.answer_has_its_type[memory_reserved]",
    "memory.figures_are_in_order memory.figure_follows_tensors[memory_reserved]",
    "memory.asking_leaves_the_cache",
)
class MethodIsMissing(GOOD_Accelerator):
    memory_reserved = _absent("memory_reserved")


broken(
    "OptionalMethodIsMissing",
    *SHAPES,
    "identity.has_every_method pinned_memory.alignment_is_a_number_of_bytes",
    pin_memory_alignment=_absent("pin_memory_alignment"),
)
# As it was on cpu and mps.
broken(
    "ArgumentHasAnotherName",
    *SHAPES,
    create_op_builder=lambda self, op_name: GOOD_Accelerator.create_op_builder(self, op_name),
)
broken("ArgumentIsMissing", *SHAPES, memory_stats=lambda self: GOOD_Accelerator.memory_stats(self))
broken(
    "NameIsNotTorchs",
    "device.answer_is_of_the_current_device device.current_device_name_is_that_of_the_current_device",
    "device.device_with_an_index_keeps_it device.device_without_an_index_is_the_type",
    "identity.name_is_the_torch_device_type op_table.unknown_op_is_refused",
    "identity.deepspeed_takes_it_for_its_accelerator random.seeding_the_device_leaves_the_host_alone",
    device_name=lambda self, device_index=None: "good" if device_index is None else f"good:{device_index}",
)


@breaks("identity.traits_have_reasons")
class TraitHasNoReason(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self.traits = {**TRAITS, "fp8": Trait(Support.UNSUPPORTED, "")}


@breaks("traits.declared_feature_is_missing[streams]")
class TraitLies(GOOD_Accelerator):
    """What it declares missing is there: its checks are skipped, and this one fails."""

    def __init__(self) -> None:
        super().__init__()
        self.traits = {**TRAITS, "streams": Trait(Support.UNSUPPORTED, "nobody has time to test them")}


@breaks("identity.deepspeed_takes_it_for_its_accelerator")
class AttributesAreNotSet(GOOD_Accelerator):
    def __init__(self) -> None:
        super().__init__()
        self._communication_backend_name = None  # type: ignore[assignment]

    def communication_backend_name(self) -> str:
        return "gloo"


# --- import cost and order: packages that do too much, too early, or only after somebody else

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


# --- the package around the class: metadata, probe, sources

_PROBE = "accel_good.probe"
_CORE = "accel-core>=0.1,<0.3"


@breaks("package.core_finds_it")
def entry_point_has_another_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.entry_points = site.entry_points.replace("good =", "better =")


@breaks("package.core_finds_it")
def a_second_entry_point_is_broken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.entry_points += "worse = accel_good.missing:VENDOR\n"


@breaks("package.core_finds_it")
def priority_is_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    import accel_good.vendor as module

    monkeypatch.setattr(module, "OTHER", replace(module.VENDOR, key="rival"), raising=False)
    site.entry_points += "rival = accel_good.vendor:OTHER\n"


@breaks("package.requirements_are_ranges")
def core_has_no_cap(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core>=0.1")


@breaks("package.requirements_are_ranges")
def core_may_refuse_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core>=0.1,<1")


@breaks("package.requirements_are_ranges")
def core_is_pinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace(_CORE, "accel-core==0.1.0")


@breaks("package.requirements_are_ranges")
def runtime_is_required(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata += "Requires-Dist: torch-good>=2\n"


@breaks("package.requirements_are_ranges")
def torch_is_pinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace("torch>=2.5", "torch==2.13.0")


@breaks("package.core_finds_it")
def version_is_another(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.metadata = site.metadata.replace("Version: 1.0", "Version: 1.1")


def _evidence(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    good = Evidence(runtime=True, hardware=True, reason="the devices are pretended")
    monkeypatch.setattr(f"{_PROBE}.evidence", lambda: replace(good, **changes))


@breaks("probe.evidence_is_evidence")
def evidence_is_a_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, runtime=2)


@breaks("probe.evidence_is_evidence probe.evidence_is_true_of_the_environment")
def evidence_is_speechless(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, reason="")


@breaks("probe.evidence_sees_the_device")
def evidence_is_blind(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _evidence(monkeypatch, hardware=False, reason="no device file dev/good0")


def _before_evidence(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    from accel_good import probe

    good = probe.evidence

    def evidence() -> Evidence:
        changes = action()
        return replace(good(), **changes) if isinstance(changes, dict) else good()

    monkeypatch.setattr(f"{_PROBE}.evidence", evidence)


@breaks("probe.evidence_is_evidence")
def evidence_wavers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(1000))
    _before_evidence(monkeypatch, lambda: {"reason": f"asked {next(counts)} times"})


@breaks("probe.evidence_survives_a_bare_machine")
def evidence_reads_what_may_be_missing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _before_evidence(monkeypatch, lambda: os.listdir(os.environ.get("ACCEL_SYSROOT", "/") + "/dev"))


@breaks("probe.evidence_leaves_no_trace")
def evidence_sets_a_variable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(1000))
    monkeypatch.setenv("GOOD_HOME", "")
    _before_evidence(monkeypatch, lambda: os.environ.update(GOOD_HOME=str(next(counts))))


@breaks("probe.evidence_leaves_no_trace")
def evidence_prints(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    _before_evidence(monkeypatch, lambda: print("looking for devices", file=sys.stderr))


@breaks("probe.confirmation_counts_the_devices")
def confirmation_miscounts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PROBE}.confirm", lambda: Confirmation(8, "eight devices are pretended"))


@breaks("probe.confirmation_counts_the_devices")
def confirmation_is_speechless(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_PROBE}.confirm", lambda: Confirmation(2, "ok"))


@breaks("package.sources_are_installed")
def source_is_not_installed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "accel_good.op_builder.optimizers.FusedAdamBuilder.sources", lambda self: ["csrc/adam.c"]
    )


@breaks("package.nothing_is_built_for_one_machine")
def source_is_built_for_one_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("csrc/nothing.c", "", "/* cc -O3 -march=" + "native */\n")


@breaks("package.sources_name_no_other_device")
def source_names_another_device(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.edit("accelerator.py", "", "\n\ndef wait() -> None:\n    torch.npu.synchronize()\n")
