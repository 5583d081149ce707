# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages and classes: missing methods, other call shapes, imports that do too much or too early."""

import os
import sys
from collections.abc import Callable
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
_WORK = "package.step_of_loading_does_its_work_only"
#: Step of loading -> the file, the text behind or ahead of which a line is put, and the text with that line.
_STEPS = {
    "package": ("__init__.py", "", "{}\n"),
    "record": ("vendor.py", "", "{}\n"),
    "evidence": ("probe.py", _ASKED, _ASKED + "    {}\n"),
    "class": ("accelerator.py", _CLASS, "{}\n\n\n" + _CLASS),
    "construction": ("accelerator.py", _CONSTRUCTED, _CONSTRUCTED.replace("{}", "{{}}") + "        {}\n"),
}


def patched(name: str, *fails: str, started: str = "", patch: Callable[[Site, Any], Any]) -> None:
    """Register a function that breaks the site of a run."""
    breaks(*fails, started=started, name=name)(patch)


def step(name: str, at: str, line: str, *fails: str) -> None:
    """Register a variant with one more line in a step of loading, or in every step, where {} is the step's name."""
    steps = _STEPS if at == "every" else [at]

    def patch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        for each in steps:
            file, old, new = _STEPS[each]
            site.edit(file, old, new.format(line.format(each) if at == "every" else line))

    patched(name, *(fails or (f"{_WORK}[{at}]",)), started="report", patch=patch)


step("record_imports_torch", "record", "import torch")
step(
    "every_step_sets_a_variable",
    "every",
    '__import__("os").environ["GOOD_{}"] = "1"',
    "package.environment_stays",
)
step("every_step_prints", "every", '__import__("os").write(1, b"{}")', _WORK)
step(
    "every_step_changes_the_process", "every", 'import sys; sys.excepthook = lambda *e, at="{}": None', _WORK
)
# This setting of torch sets a variable too.
step(
    "class_changes_torch",
    "class",
    "torch.use_deterministic_algorithms(True)",
    "package.settings_of_torch_stay[class] package.environment_stays[class]",
)
# As it was on npu and sdaa.
step(
    "class_swallows_an_import",
    "class",
    "try:\n    import torch_good\nexcept ImportError:\n    pass\n\nDEVICES = torch_good.device_count()",
)
step("evidence_raises", "evidence", 'raise FileNotFoundError("version.info")')


# --- the package around the class: metadata, probe, sources

_PROBE = "accel_good.probe"


def metadata(name: str, old: str, new: str, fails: str = "package.requirements_are_ranges") -> None:
    """Register a package whose metadata have another text; an empty `old` means the end."""

    def patch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        site.metadata = site.metadata.replace(old, new) if old else site.metadata + new

    patched(name, fails, patch=patch)


def entry_points(name: str, old: str, new: str) -> None:
    """Register a package with another text in its entry points; an empty `old` means the end."""

    def patch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        site.entry_points = site.entry_points.replace(old, new) if old else site.entry_points + new

    patched(name, "package.core_finds_it", patch=patch)


entry_points("entry_point_has_another_name", "good =", "better =")
metadata("runtime_is_required", "", "Requires-Dist: torch-good>=2\n")
metadata("torch_is_pinned", "torch>=2.5", "torch==2.13.0")


def replaced(name: str, fails: str, target: str, value: Any) -> None:
    """Register a package in which a name has another value."""
    patched(name, fails, patch=lambda site, monkeypatch: monkeypatch.setattr(target, value))


for _name, _fails, _evidence in (
    ("evidence_is_speechless", "probe.evidence_is_evidence", Evidence(True, True, "")),
    (
        "evidence_is_blind",
        "probe.evidence_sees_the_device",
        Evidence(True, False, "no device file dev/good0"),
    ),
):
    replaced(_name, _fails, f"{_PROBE}.evidence", lambda answer=_evidence: answer)


def before_evidence(name: str, fails: str, action: Callable[[int], Any]) -> None:
    """Register a probe that does something each time it is asked: a dict changes its answer."""

    def patch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        from accel_good import probe

        good, counts = probe.evidence, iter(range(1000))
        monkeypatch.setenv("GOOD_HOME", "")

        def evidence() -> Evidence:
            changes = action(next(counts))
            return replace(good(), **changes) if isinstance(changes, dict) else good()

        monkeypatch.setattr(f"{_PROBE}.evidence", evidence)

    patched(name, fails, patch=patch)


before_evidence(
    "evidence_reads_what_may_be_missing",
    "probe.evidence_survives_a_bare_machine",
    lambda count: os.listdir(os.environ.get("ACCEL_SYSROOT", "/") + "/dev"),
)
before_evidence(
    "evidence_prints",
    "probe.evidence_leaves_no_trace",
    lambda count: print("looking for devices", file=sys.stderr),
)
for _name, _confirmation in {
    "confirmation_miscounts": Confirmation(8, "eight devices are pretended"),
    "confirmation_is_speechless": Confirmation(2, "ok"),
}.items():
    _counts = "probe.confirmation_counts_the_devices"
    replaced(_name, _counts, f"{_PROBE}.confirm", lambda answer=_confirmation: answer)
replaced(
    "source_is_not_installed",
    "package.sources_are_installed",
    "accel_good.op_builder.optimizers.FusedAdamBuilder.sources",
    lambda self: ["csrc/adam.c"],
)
patched(
    "source_is_built_for_one_machine",
    "package.nothing_is_built_for_one_machine",
    patch=lambda site, monkeypatch: site.edit("csrc/nothing.c", "", "/* cc -O3 -march=" + "native */\n"),
)
patched(
    "source_names_another_device",
    "package.sources_name_no_other_device",
    patch=lambda site, monkeypatch: site.edit(
        "accelerator.py", "", "\n\ndef wait() -> None:\n    torch.npu.synchronize()\n"
    ),
)
