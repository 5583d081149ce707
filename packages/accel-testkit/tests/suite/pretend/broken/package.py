# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages and classes: missing methods, other call shapes, imports that do too much; ranks and their environment."""

import itertools
import os
import sys
from functools import cache

import torch
import torch.distributed as dist
from accel_good import probe
from accel_good.accelerator import GOOD_Accelerator as Good

from accel_core.vendor import Confirmation, Evidence
from broken import EVERYTHING, after, answers, breaks, table


@breaks(EVERYTHING)
class ConstructorFails(Good):
    def __init__(self):
        raise OSError("libgood.so: cannot open shared object file")


@breaks(EVERYTHING, "identity.is_an_accelerator")
class NotAnAccelerator:
    """Has the names, and derives from nothing."""

    def __getattr__(self, name):
        return getattr(Good(), name)


def _absent(self):
    raise AttributeError("pin_memory_alignment")


#: The checks of call shapes: our interface's and the installed DeepSpeed's.
_SHAPES = "identity.has_every_method identity.has_every_method_of_upstream"
table(
    ("OptionalMethodIsMissing", f"{_SHAPES} pinned_memory.alignment_is_a_number_of_bytes",
     "pin_memory_alignment", property(_absent)),
    ("Singleton", "identity.can_be_constructed_again answers.each_compile_backend_can_be_set",
     "__new__", cache(lambda cls: object.__new__(cls))),
    # As it was on cpu and mps.
    ("ArgumentHasAnotherName", _SHAPES,
     "create_op_builder", lambda self, op_name: Good.create_op_builder(self, op_name)),
    ("AttributesAreNotSet", "identity.deepspeed_takes_it_for_its_accelerator",
     "_communication_backend_name", property(lambda self: None, lambda self, name: None),
     "communication_backend_name", lambda self: "gloo"),
    ("NameIsNotTorchs",
     "device.answer_is_of_the_current_device device.current_device_name_is_that_of_the_current_device "
     "device.device_with_an_index_keeps_it device.device_without_an_index_is_the_type "
     "identity.name_is_the_torch_device_type op_table.unknown_op_is_refused "
     "identity.deepspeed_takes_it_for_its_accelerator random.seeding_the_device_leaves_the_host_alone",
     "device_name",
     lambda self, device_index=None: "good" if device_index is None else f"good:{device_index}"),
)  # fmt: skip


# --- import cost and order: packages that do too much, too early, or only after somebody else

_CLASS = "class GOOD_Accelerator(TorchDeviceAccelerator):"
_CONSTRUCTED = "        self._registered: set[int] = set()\n"
_WORK = "package.step_of_loading_does_its_work_only"
_ASKED = '    """Nothing has to be looked for."""\n'
#: Step of loading -> the file, the text behind or ahead of which a line is put, and the text with that line.
_STEPS = {
    "package": ("__init__.py", "", "{}\n"),
    "record": ("vendor.py", "", "{}\n"),
    "evidence": ("probe.py", _ASKED, _ASKED + "    {}\n"),
    "class": ("accelerator.py", _CLASS, "{}\n\n\n" + _CLASS),
    "construction": ("accelerator.py", _CONSTRUCTED, _CONSTRUCTED + "        {}\n"),
}


def _step(at, line):
    """One more line in a step of loading, or in every step, where {} is the step's name."""

    def patch(site, monkeypatch):
        for each in _STEPS if at == "every" else [at]:
            file, old, new = _STEPS[each]
            site.edit(file, old, new.format(line.format(each) if at == "every" else line))

    return patch


for _name, _at, _line, _fails in (
    ("record_imports_torch", "record", "import torch", f"{_WORK}[record]"),
    ("every_step_sets_a_variable", "every", '__import__("os").environ["GOOD_{}"] = "1"',
     "package.environment_stays"),
    ("every_step_prints", "every", '__import__("os").write(1, b"{}")', _WORK),
    ("every_step_changes_the_process", "every", 'import sys; sys.excepthook = lambda *e, at="{}": None', _WORK),
    # This setting of torch sets a variable too.
    ("class_changes_torch", "class", "torch.use_deterministic_algorithms(True)",
     "package.settings_of_torch_stay[class] package.environment_stays[class]"),
    # As it was on npu and sdaa.
    ("class_swallows_an_import", "class",
     "try:\n    import torch_good\nexcept ImportError:\n    pass\n\nDEVICES = torch_good.device_count()",
     f"{_WORK}[class]"),
    ("evidence_raises", "evidence", 'raise FileNotFoundError("version.info")', f"{_WORK}[evidence]"),
):  # fmt: skip
    breaks(_fails, started="report", name=_name)(_step(_at, _line))


# --- the package around the class: metadata, probe, sources


def _sets(target, value):
    return lambda site, monkeypatch: monkeypatch.setattr(target, value)


def _changes(text, old, new):
    return lambda site, monkeypatch: setattr(site, text, getattr(site, text).replace(old, new))


for _name, _fails, _patch in (
    ("entry_point_has_another_name", "package.core_finds_it", _changes("entry_points", "good =", "better =")),
    ("runtime_is_required", "package.requirements_are_ranges",
     _changes("metadata", "torch>=2.8\n", "torch>=2.8\nRequires-Dist: torch-good>=2\n")),
    ("torch_is_pinned", "package.requirements_are_ranges", _changes("metadata", "torch>=2.8", "torch==2.13.0")),
    ("evidence_is_speechless", "probe.evidence_is_evidence",
     _sets("accel_good.probe.evidence", lambda: Evidence(True, True, ""))),
    ("evidence_is_blind", "probe.confirmation_counts_the_devices",
     _sets("accel_good.probe.evidence", lambda: Evidence(True, False, "no device file dev/good0"))),
    # It says so even where the variable, which the package names, is set.
    ("variable_is_never_set", "probe.evidence_is_true_of_the_environment", _sets("accel_good.probe.evidence",
           lambda: Evidence(True, True, "all devices: GOOD_VISIBLE_DEVICES is not set"))),
    ("evidence_reads_what_may_be_missing", "probe.evidence_is_evidence",
     _sets("accel_good.probe.evidence",
           after(probe.evidence, lambda: os.listdir(os.environ.get("ACCEL_SYSROOT", "/") + "/dev")))),
    ("evidence_prints", "probe.evidence_is_evidence", _sets("accel_good.probe.evidence",
           after(probe.evidence, lambda: print("looking for devices", file=sys.stderr)))),
    ("confirmation_miscounts", "probe.confirmation_counts_the_devices",
     _sets("accel_good.probe.confirm", lambda: Confirmation(8, "eight devices are pretended"))),
    ("confirmation_is_speechless", "probe.confirmation_counts_the_devices",
     _sets("accel_good.probe.confirm", lambda: Confirmation(2, "ok"))),
    ("source_is_not_installed", "package.sources_are_installed",
     _sets("accel_good.op_builder.builders.FusedAdamBuilder.sources", lambda self: ["csrc/adam.c"])),
    ("source_is_built_for_one_machine", "package.nothing_is_built_for_one_machine",
     lambda site, _: site.edit("csrc/nothing.c", "", "/* cc -O3 -march=" + "native */\n")),
    ("source_names_another_device", "package.sources_name_no_other_device",
     lambda site, _: site.edit("accelerator.py", "", "\n\ndef wait():\n    torch.npu.synchronize()\n")),
    ("typed_tensor_class_is_any_class", "tensors.typed_tensor_class_is_taken_as_its_name",
     _sets("torch.FloatTensor", type("FloatTensor", (), {}))),
):  # fmt: skip
    breaks(_fails, name=_name)(_patch)


@breaks("probe.evidence_without_torch_is_no_runtime", started="bare")
def runtime_is_there_without_torch(site, monkeypatch):
    site.edit("probe.py", 'module_exists("torch")', 'module_exists("json")')


# --- two ranks, launchers and the engine: operations that move nothing, devices that are not set

answers({"communication_backend_name": "goodccl"}, "collectives.backend_is_registered")


class _Done:
    def wait(self):
        pass


def _nothing(*args, **kwargs):
    """An operation that leaves every tensor as it is."""
    return _Done() if kwargs.get("async_op") else None


def _without(*operations):
    """A runtime that replaces operations of torch.distributed in the ranks, as some runtimes do."""

    def replace(self):
        for name in operations if "RANK" in os.environ else ():
            setattr(dist, name, _nothing)

    return after(Good.__init__, replace)


_MOVES = "collectives.operation_moves_data"
table(
    ("CollectiveIsNotReduced",
     f"collectives.all_reduce_sums {_MOVES}[all_reduce_max] {_MOVES}[asynchronous_all_reduce]",
     "__init__", _without("all_reduce")),
    ("BarrierLetsThrough", "collectives.barrier_holds_back", "__init__", _without("barrier")),
    ("RanksShareADevice", "collectives.ranks_join_on_their_devices", "set_device", lambda self, device_index: None),
    started="answers", module=__name__,
)  # fmt: skip
table(
    ("GradientsAreNotReduced", "training.two_ranks_train_like_one",
     "__init__", _without("all_reduce", "reduce_scatter_tensor", "all_gather_into_tensor")),
    started="pair", module=__name__,
)  # fmt: skip
table(
    ("EngineHasNoBfloat16", "training.bfloat16_trains", "is_bf16_supported", lambda self: False),
    ("EngineIsElsewhere", "training.losses_are_those_of_plain_torch training.bfloat16_trains "
     "training.training_goes_on_from_a_checkpoint",
     "device", lambda self, device_index=None: torch.device("meta"),
     "device_name", lambda self, device_index=None: "meta"),
    started="alone", module=__name__,
)  # fmt: skip


@breaks("collectives.gloo_takes_device_tensors", started="answers")
class DeviceTensorsAreNotScattered(Good):
    def __init__(self):
        super().__init__()
        scatter, calls = dist.scatter, itertools.count()

        def of_the_host(*arguments, **options):
            # The check takes the host's tensor first; those of the pretended devices are on the host, too.
            return None if next(calls) % 2 else scatter(*arguments, **options)

        if "RANK" in os.environ:
            dist.scatter = of_the_host


@breaks("training.deepspeed_chooses_the_accelerator", started="alone")
def deepspeed_trains_on_another(site, monkeypatch):
    other = '\n\nif "RANK" in os.environ:\n    GOOD_Accelerator = type("OTHER_Accelerator", (GOOD_Accelerator,), {})\n'
    site.edit("accelerator.py", "from contextlib", "import os\nfrom contextlib")
    site.edit("accelerator.py", "", other)


# --- environment and ranges: borrowed variables, things left behind

_IDS = ("two digits", "texts of two digits", "a whole machine", "names")
_GIVEN = "environment.visible_devices_are_the_ids_given"

answers({"visible_devices_envs": []}, "environment.visible_devices_are_the_ids_given")
answers({"export_envs": ["GLOO_", "H"]}, "environment.exports_have_what_ranks_need")
answers({"export_envs": ("GLOO_",)}, "environment.exports_have_what_ranks_need")
table(
    ("RangesLeaveTheDomainOut", "environment.domain_gets_its_ranges", "supports_nvtx_domain", True),
    # A profiler formats the name.
    ("RangeNamesAreFormats", "environment.range_has_any_name[percent signs]",
     "range_push", lambda self, msg, domain=None, category=None: msg % ()),
    ("VisibleDevicesLeak",
     "environment.questions_leave_no_trace "
     "random.seed_reaches_its_devices streams.stream_is_of_the_device_named", "set_visible_devices_envs", after(
         Good.set_visible_devices_envs,
         lambda self, current_env, local_accelerator_ids: Good.set_visible_devices_envs(
             self, os.environ, local_accelerator_ids))),
    ("ExportsLeak", "environment.questions_leave_no_trace",
     "export_envs", after(Good.export_envs, lambda self: os.environ.update(
         GOOD_ASKED=os.environ.get("GOOD_ASKED", "") + "again "))),
    ("SettingsAreForced", "environment.constructor_keeps_what_is_set",
     "__init__", after(Good.__init__, lambda self: os.environ.update(GOOD_LAZY_MODE="0"))),
)  # fmt: skip


@breaks(*(f"{_GIVEN}[{shown} shown-{kind}]" for shown in ("three", "one") for kind in _IDS))
class VisibleDevicesAreThoseOfThisProcess(Good):
    """It takes the ids for places in what the process itself is shown."""

    def set_visible_devices_envs(self, current_env, local_accelerator_ids):
        shown = os.environ.get("GOOD_VISIBLE_DEVICES", "").split(",")
        ids = [shown[int(i) % len(shown)] if str(i).isdigit() else "?" for i in local_accelerator_ids]
        super().set_visible_devices_envs(current_env, ids if shown != [""] else local_accelerator_ids)
