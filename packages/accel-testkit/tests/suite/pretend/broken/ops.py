# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op tables, builders, optimizers, host ops, file I/O: what raises or lies, forgotten arguments, silent failures."""

import os
import subprocess
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import torch
from accel_good.accelerator import GOOD_Accelerator as Good
from accel_good.op_builder import TABLE
from accel_good.runtime import TheRuntime
from accel_good.traits import TRAITS
from setuptools.command.build_ext import build_ext

from accel_core.op_builder import Implementation
from accel_ops.io.builder import AsyncIOBuilder
from broken import answers, breaks, table


def with_builder(builder, **changes):
    """A class in which one builder has other attributes."""

    class Changed(Good):
        _changed = None

        def get_op_builder(self, class_name):
            cls = super().get_op_builder(class_name)
            if class_name != builder:
                return cls
            kind = type(self)
            kind._changed = kind._changed or type(builder, (cls,), {**changes, "__module__": cls.__module__})
            return kind._changed

    return Changed


class ChangedOp:
    """A loaded op with some functions replaced; each gets the true op first."""

    def __init__(self, op, functions):
        self.op = op
        self.__dict__.update({name: partial(function, op) for name, function in functions.items()})

    def __getattr__(self, name):
        return getattr(self.op, name)


def functions(*rows):
    """Register a variant for each row, in which functions of a loaded op are replaced.

    A row is (name, builder, checks, function, what takes its place[, function, what takes its place]).
    """
    for name, builder, fails, *members in rows:
        changed = dict(zip(members[::2], members[1::2], strict=True))

        def load(self, verbose=True, changed=changed):
            return ChangedOp(super(type(self), self).load(verbose), changed)

        breaks(fails, name=name)(with_builder(builder, load=load))


def replaces(builder, function, *fails):
    """Register a variant of the decorated function's name, in which it is a function of a loaded op."""

    def register(replacement):
        functions((replacement.__name__, builder, " ".join(fails), function, replacement))
        return replacement

    return register


# --- the table and its package

answers({"build_extension": build_ext}, "op_table.extension_command_takes_options")
table(
    # A package that can be imported, of other builders.
    ("PackageOfBuildersIsAnother", "op_table.package_of_builders_can_be_imported",
     "op_builder_dir", lambda self: "accel_ops.io"),
    ("BuildersAreKept", "op_table.builders_are_new", "create_op_builder", cache(Good.create_op_builder)),
    # As it was on cuda and hpu.
    ("MissingOpIsNone", "op_table.asking_for_compatibility_is_harmless op_table.builders_are_new "
     "op_table.missing_ops_have_reasons op_table.unknown_op_is_refused "
     "identity.deepspeed_s_builders_are_this_device_s", "create_op_builder", lambda self, class_name: (
         Good.create_op_builder(self, class_name) if class_name in TABLE else None)),
)  # fmt: skip


@breaks("op_table.subclass_has_the_ops_of_its_class")
class PackageIsThatOfSelf(Good):
    """Right for its own class, which is where the builders are."""

    def op_builder_dir(self):
        own = type(self) is PackageIsThatOfSelf
        return super().op_builder_dir() if own else f"{type(self).__module__}.op_builder"


class _WithoutTrait(Good):
    def __init__(self):
        super().__init__()
        self.traits = {name: trait for name, trait in TRAITS.items() if name != "AsyncIOBuilder"}


breaks("op_table.missing_ops_have_reasons", name="MissingOpHasNoTrait")(_WithoutTrait)


# --- builders

_STEPS = "op_steps.optimizer_steps_are_right"
_ADAM = f"{_STEPS}[FusedAdam-AdamW] {_STEPS}[FusedAdam-Adam]"
_HARMLESS = "op_table.asking_for_compatibility_is_harmless"
_LOADED = {}


def _raises(self, verbose=False):
    raise FileNotFoundError("/usr/local/good/version.txt")


def _load_once(self, verbose=True):
    kind = type(self)
    _LOADED[kind] = _LOADED.get(kind) or super(kind, self).load(verbose)
    return _LOADED[kind]


for _name, _builder, _fails, _changes in (
    ("RaisingBuilder", "FusedAdamBuilder", f"{_HARMLESS} {_ADAM}", {"is_compatible": _raises}),
    ("StartingBuilder", "FusedAdamBuilder", _HARMLESS,
     {"is_compatible": lambda self, verbose=False: subprocess.run(["true"], check=False).returncode == 0}),
    ("NamelessBuilder", "FusedAdamBuilder", "op_table.builders_tell_about_themselves", {"NAME": "cpu_adam"}),
    ("OneRangeForAll", "FPQuantizerBuilder", "op_fp_quantizer.builder_tells_type_and_range",
     {"get_quant_range": staticmethod(lambda bits=None: 480.0)}),
    ("ReasonIsUnfinished", "FusedLionBuilder", "op_runtime.reasons_are_whole[FusedLionBuilder]",
     {"compatibility": lambda self: (True, "torch.ops.")}),
    ("NamedOpIsNotCalled", "FusedLionBuilder", "op_runtime.operator_that_works_is_used[FusedLionBuilder]",
     {"compatibility": lambda self: (True, "torch.ops.aten.relu"),
      "implementations": classmethod(lambda cls: (Implementation.VENDOR_OP, Implementation.PLAIN))}),
    ("LoadedOpsAreOne", "InferenceBuilder",
     "op_attention.two_ops_share_no_cache op_attention.what_there_is_not_is_refused", {"load": _load_once}),
    ("OpIsRefusedAndLoads", "UtilsBuilder", "op_table.compatible_op_loads[UtilsBuilder]",
     {"compatibility": lambda self: (False, "it was never tried out")}),
    ("ProbesRaise", "UtilsBuilder", "op_table.a_probe_that_fails_is_a_reason[UtilsBuilder]",
     {"is_compatible": lambda self, verbose=False: self.compatibility()[0]}),
    ("OpHasAnotherName", "FusedLambBuilder", "op_table.names_are_upstream_s", {"NAME": "lamb"}),
):  # fmt: skip
    breaks(_fails, name=_name)(with_builder(_builder, **_changes))


# --- optimizers: forgotten arguments, wrong layouts, early rounding, settings that stay, a device left current

_SAMPLES = "ops.samples_are_right"
_FUSED_ADAM = f"{_SAMPLES}[FusedAdamBuilder-multi_tensor_adam"
_gone = set()


def _destroyed(op, number):
    if number in _gone:
        raise KeyError(number)
    _gone.add(number)


functions(
    # Adam without its bias correction.
    ("AdamIsNotCorrected", "FusedAdamBuilder", _ADAM,
     "multi_tensor_adam", lambda op, *args: op.multi_tensor_adam(*args[:9], 0, *args[10:])),
    ("LambReturnsNothing", "FusedLambBuilder", f"{_SAMPLES}[FusedLambBuilder-lamb corrected-fp32]",
     "lamb", lambda op, *arguments: (op.lamb(*arguments), None)[1]),
    ("EveryFunctionExists", "FusedLambBuilder", "op_table.unknown_functions_are_missing",
     "no_such_function", lambda op: None),
    ("StridesAreForgotten", "FusedLionBuilder", "ops.any_argument_may_have_strides[FusedLionBuilder]",
     "multi_tensor_lion", lambda op, chunk, flag, lists, *rest: op.multi_tensor_lion(
         chunk, flag, [[tensor.contiguous() for tensor in tensors] for tensors in lists], *rest)),
    ("LionHidesNan", "FusedLionBuilder", f"{_SAMPLES}[FusedLionBuilder-multi_tensor_lion-fp32]",
     "multi_tensor_lion", lambda op, chunk, flag, lists, *rest: op.multi_tensor_lion(
         chunk, flag, [[grad.nan_to_num() for grad in lists[0]], *lists[1:]], *rest)),
    ("LionStepsOnDevice0", "FusedLionBuilder", "op_devices.op_computes_where_its_tensors_are[FusedLionBuilder]",
     "multi_tensor_lion", lambda op, *arguments: (
         op.multi_tensor_lion(*arguments) if TheRuntime.now.index == 0 else None)),
    ("RollbackDoesNothing", "CPUAdamBuilder", "op_host.adam_can_take_a_step_back",
     "adam_rollback", lambda op, *arguments: 0),
    ("DestroyingTwiceFails", "CPULionBuilder", f"{_SAMPLES}[CPULionBuilder-lion_update-fp32]",
     "destroy_lion", _destroyed,
     "create_lion", lambda op, number, *rest: (_gone.discard(number), op.create_lion(number, *rest))),
    ("PartsAreCopies", "UtilsBuilder", "op_host.tensors_are_flattened",
     "unflatten", lambda op, flat, tensors: [part.clone() for part in op.unflatten(flat, tensors)]),
)  # fmt: skip


@replaces("FusedAdamBuilder", "multi_tensor_adam", f"{_FUSED_ADAM} Adam-fp32]")
def AdamKeepsTheFirstRate(op, chunk, flag, lists, lr, *rest):
    op.first_rate = getattr(op, "first_rate", lr)
    op.multi_tensor_adam(chunk, flag, lists, op.first_rate, *rest)


@replaces("FusedAdamBuilder", "multi_tensor_adam", f"{_FUSED_ADAM} AdamW-fp32]")
def AdamSetsTheFlag(op, chunk, flag, lists, *rest):
    op.multi_tensor_adam(chunk, flag, lists, *rest)
    if not all(bool(grad.isfinite().all()) for grad in lists[0]):
        flag.fill_(1)


@replaces(
    "FusedAdamBuilder", "multi_tensor_adam",
    *(f"{_FUSED_ADAM} Adam-{kind}]" for kind in ("bf16", "fp16")),
)  # fmt: skip
def DecayIsRounded(op, chunk, flag, lists, *arguments):
    *middle, decoupled, correction, decay = arguments
    if not decoupled:
        grads = [grad + decay * param.detach() for grad, param in zip(*lists[:2], strict=True)]
        lists, decay = [grads, *lists[1:]], 0.0
    op.multi_tensor_adam(chunk, flag, lists, *middle, decoupled, correction, decay)


@replaces(
    "FusedAdamBuilder", "multi_tensor_adam",
    *(f"{_FUSED_ADAM} Adam-{kind}]" for kind in ("bf16", "fp16")),
)  # fmt: skip
def AdamGetsItsNumbersInTheParametersType(op, chunk, flag, lists, lr, beta1, beta2, eps, *rest):
    numbers = torch.tensor((beta1, beta2, eps)).to(lists[1][0].dtype).tolist()
    op.multi_tensor_adam(chunk, flag, lists, lr, *numbers, *rest)


@replaces("FusedAdamBuilder", "multi_tensor_adam", f"{_FUSED_ADAM} AdamW-fp32]")
def AbsentDecayIsAdded(op, chunk, flag, lists, *arguments):
    lists[0] = [grad + 0.0 * param.detach() for grad, param in zip(*lists[:2], strict=True)]
    op.multi_tensor_adam(chunk, flag, lists, *arguments)


@replaces("FusedLambBuilder", "lamb", "op_devices.op_computes_where_its_tensors_are[FusedLambBuilder]")
def LambLeavesAnotherStream(op, *arguments):
    streams = TheRuntime.now.streams
    streams.current[1] = streams.default[1]
    return op.lamb(*arguments)


@replaces("CPULionBuilder", "lion_update", "op_devices.op_leaves_settings[CPULionBuilder]")
def LionSetsThreads(op, *arguments):
    torch.set_num_threads(torch.get_num_threads() % 2 + 1)
    return op.lion_update(*arguments)


@replaces("CPULionBuilder", "lion_update", "op_host.step_works_in_a_forked_worker[CPULionBuilder]")
def LionServesOneProcess(op, *arguments):
    op.process = getattr(op, "process", os.getpid())
    return op.lion_update(*arguments) if op.process == os.getpid() else 0


@replaces(
    "CPUAdagradBuilder",
    "adagrad_update",
    *(f"{_SAMPLES}[CPUAdagradBuilder-adagrad_update-{kind}]" for kind in ("fp32", "bf16")),
)
def SumsHaveALeastNumber(op, *arguments):
    result = op.adagrad_update(*arguments)
    arguments[-1].clamp_(min=1e-30)
    return result


# --- the host's memory


@replaces(
    "PinMemoryBuilder", "pin_handle", "op_host.locked_memory_is_locked_until_freed",
)  # fmt: skip
def HandlesKnowTheirOwn(op):
    mine = []
    handle = op.pin_handle()

    def new(size, example):
        block = handle.new_cpu_locked_tensor(size, example)
        mine.append(block.data_ptr())
        return block

    return SimpleNamespace(
        new_cpu_locked_tensor=new,
        free_cpu_locked_tensor=lambda tensor: tensor.data_ptr() in mine,
        free_cpu_locked_tensor_by_ptr=lambda address: address in mine,
        is_pinned=lambda tensor: tensor.data_ptr() in mine,
    )


@replaces("UtilsBuilder", "cast_to_byte_tensor", "op_host.tensors_are_bytes")
def BytesAreCopies(op, tensors):
    bytes_of = op.cast_to_byte_tensor(tensors)
    return bytes_of.clone() if isinstance(bytes_of, torch.Tensor) else [one.clone() for one in bytes_of]


# --- file I/O


class Files:
    """A handle with some functions replaced."""

    def __init__(self, handle):
        self.handle = handle

    def __getattr__(self, name):
        return getattr(self.handle, name)


class Served(_WithoutTrait):
    """The pretended device with the file I/O that all vendors have."""

    handle = Files
    functions = {}  # noqa: RUF012
    _builder = None

    def get_op_builder(self, class_name):
        if class_name != "AsyncIOBuilder":
            return super().get_op_builder(class_name)
        kind = type(self)
        kind._builder = kind._builder or type(class_name, (AsyncIOBuilder,), {"load": self._load})
        return kind._builder

    @classmethod
    def _load(cls, verbose=True):
        op = AsyncIOBuilder().load(verbose)
        functions = {"aio_handle": lambda *arguments: cls.handle(op.aio_handle(*arguments)), **cls.functions}
        return SimpleNamespace(**{**vars(op), **functions})


def _what_fits(there, here):
    size = min(there.numel(), here.numel())
    there.view(-1)[:size] = here.reshape(-1)[:size]
    return 0


def _truncating(self, buffer, file, offset=0):
    os.truncate(file, offset)
    return self.handle.sync_pwrite(buffer, file, offset)


def _emptying(self, buffer, file, offset=0):
    if not buffer.numel():
        Path(file).write_bytes(b"")
    return self.handle.sync_pwrite(buffer, file, offset)


class Silent(Files):
    lost = 0

    def async_pread(self, buffer, file, offset=0):
        whole = Path(file).exists() and Path(file).stat().st_size >= offset + buffer.numel()
        self.lost += not whole
        return self.handle.async_pread(buffer, file, offset) if whole else 0

    def wait(self):
        count = self.handle.wait() + self.lost
        self.lost = 0
        return count


class GivingUp(Files):
    """The requests are made while they are waited for, up to the first error."""

    def __init__(self, handle):
        super().__init__(handle)
        self.begun = []

    def async_pread(self, buffer, file, offset=0):
        self.begun.append((buffer, file, offset))
        return 0

    def wait(self):
        waiting, self.begun = self.begun, []
        count = self.handle.wait()
        for request in waiting:
            self.handle.sync_pread(*request)
        return count + len(waiting)


def _handle(**methods):
    return {"handle": type("Changed", (Files,), methods)}


for _name, _checks, _changes in (
    ("MemcpyCopiesWhatFits", ["functions_without_a_handle_transfer"],
     {"functions": {"deepspeed_memcpy": _what_fits}}),
    ("Files_Truncating", ["writes_leave_the_rest_of_a_file", "locked_tensors_can_be_transferred"],
     _handle(sync_pwrite=_truncating)),
    ("Files_FromTheStart", ["reads_in_flight_each_fill_their_tensor"],
     _handle(async_pread=lambda self, buffer, file, offset=0: self.handle.async_pread(buffer, file, 0))),
    ("Files_Silent", ["requests_that_fail_say_so"], {"handle": Silent}),
    ("Files_OneSize", ["handle_tells_what_it_was_given"], _handle(get_block_size=lambda self: 1 << 20)),
    ("Files_GivingUp", ["requests_that_fail_say_so"], {"handle": GivingUp}),
    ("Files_AsItLies", ["strides_are_transferred_or_refused"],
     _handle(sync_pwrite=lambda self, buffer, file, offset=0: self.handle.sync_pwrite(
         buffer.as_strided((buffer.numel(),), (1,)), file, offset))),
    ("Files_Emptying", ["nothing_is_transferred_of_empty_tensors"], _handle(sync_pwrite=_emptying)),
    ("Files_ComparedAtTheStart", ["reads_in_flight_each_fill_their_tensor"],
     _handle(read=lambda self, buffer, file, validate, offset=0: self.handle.read(
         buffer, file, validate, 0 if validate else offset))),
):  # fmt: skip
    breaks(*(f"op_file_io.{check}" for check in _checks), name=_name)(type(_name, (Served,), _changes))
