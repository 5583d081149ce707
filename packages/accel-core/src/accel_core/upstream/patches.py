# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Small changes to functions of DeepSpeed that cost a user seconds, give wrong numbers, or fail on some devices.

docs/upstream-hooks.md has the reason for each, and when it can be removed.
"""

from __future__ import annotations

import collections
import functools
import importlib.metadata
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from accel_core import env
from accel_core.errors import DOCUMENTATION, InvalidEnvironment, InvalidZenFlow, UnloadableCheckpoint
from accel_core.launchers import OPEN_MPI
from accel_core.upstream import contract
from accel_core.vendor import Feature, VisibleDevices, visible

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("accel_core")

# ------------------------------------------------------------------------------------- the CPU's maker

_PROC = Path("/proc/cpuinfo")
#: Names of the field in /proc/cpuinfo, in py-cpuinfo's words.
_FIELDS = ("vendor_id", "vendor id", "vendor")
#: Their constructors read the maker and nothing else.
_OPTIMIZERS = ("deepspeed.ops.adam.cpu_adam", "deepspeed.ops.lion.cpu_lion")


def patch_cpu_info(module: ModuleType) -> None:
    """Answer DeepSpeed's CPU optimizers from /proc/cpuinfo: `get_cpu_info` of `cpuinfo` takes seconds.

    The module may be imported ahead of DeepSpeed, so the function itself asks whether the bridge is on.
    """
    stock = getattr(module, "get_cpu_info", None)
    if stock is None:
        return

    @functools.wraps(stock)
    def get_cpu_info() -> dict[str, Any]:
        caller = sys._getframe(1).f_globals.get("__name__")
        if caller in _OPTIMIZERS and contract.is_registered() and (maker := _maker()):
            return {"vendor_id_raw": maker}
        answer: dict[str, Any] = stock()
        return answer

    module.get_cpu_info = get_cpu_info  # type: ignore[attr-defined]


def _maker() -> str:
    """Return the CPU's maker, empty where the system does not name it."""
    try:
        lines = _PROC.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    fields = ([part.strip() for part in line.split(":", 1)] for line in lines if ":" in line)
    return next((value for name, value in fields if name.lower() in _FIELDS and value), "")


# ------------------------------------------------------------------------------------------- the engine


def patch_engine(module: ModuleType) -> None:
    """Change what `deepspeed.runtime.engine`, which has just been imported, does with ZenFlow, NVMe and Open MPI."""
    engine = module.DeepSpeedEngine
    engine.load_checkpoint = _warning(engine.load_checkpoint)
    engine._load_zero_checkpoint = _refusing(engine._load_zero_checkpoint)
    engine._configure_with_arguments = _by_local_rank(engine._configure_with_arguments)
    if hasattr(module, "configure_zenflow"):
        module.configure_zenflow = _finite(module.configure_zenflow)  # type: ignore[attr-defined]


def _by_local_rank(stock: Callable[..., None]) -> Callable[..., None]:
    """Return `_configure_with_arguments` without Open MPI's local rank, which DeepSpeed compares with LOCAL_RANK.

    They differ in a rank of torchrun under mpirun.
    """
    (name,) = OPEN_MPI.local_rank

    @functools.wraps(stock)
    def configure_with_arguments(*args: Any, **kwargs: Any) -> None:
        other = os.environ.pop(name, None) if os.environ.get("LOCAL_RANK") else None
        try:
            stock(*args, **kwargs)
        finally:
            if other is not None:
                os.environ[name] = other

    return configure_with_arguments


def _refusing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `_load_zero_checkpoint`, which would fail after it has replaced a part, that refuses ahead of it."""

    @functools.wraps(stock)
    def load_zero_checkpoint(engine: Any, *args: Any, **kwargs: Any) -> Any:
        groups = getattr(engine.optimizer, "fp16_partitioned_groups_flat", ())
        outside = sum(group is None for group in groups)
        if outside and not engine.load_universal_checkpoint():
            raise UnloadableCheckpoint(
                what="DeepSpeed cannot load a checkpoint into parameters that are on NVMe",
                found=f"{outside} of {len(groups)} groups of parameters on NVMe, the optimizer in memory",
                expected="parameters in memory",
                do="give offload_param a max_in_cpu of at least the rank's number of parameters, or the device cpu: "
                "the files of a checkpoint are the same",
            )
        return stock(engine, *args, **kwargs)

    return load_zero_checkpoint


def _warning(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `load_checkpoint` that warns of optimizer states on NVMe, which are not all restored."""

    @functools.wraps(stock)
    def load_checkpoint(engine: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = stock(engine, *args, **kwargs)
        swaps = getattr(engine.optimizer, "swap_optimizer", False)
        if loaded[0] is not None and swaps and env.is_local_rank_zero():
            _log.warning(
                "DeepSpeed has not restored all of the optimizer's states on NVMe: the losses differ from those of a "
                "run that was not interrupted. To continue exactly, save and load with offload_optimizer on cpu; "
                "%s/deepspeed-issues.md has the cause",
                DOCUMENTATION,
            )
        return loaded

    return load_checkpoint


#: Adam's, where the configuration has none; and the largest that float16 rounds to 0.
_EPS, _ZERO_IN_FP16 = 1e-8, 2.0**-25


def _finite(stock: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return `configure_zenflow`, which the engine calls ahead of making its optimizer, without losses of NaN."""

    @functools.wraps(stock)
    def configure_zenflow(engine: Any) -> None:
        if engine.zenflow_config() is not None and engine.fp16_enabled():
            _refuse_nan(engine)
        stock(engine)
        if engine.zenflow_config() is not None and engine._config.gradient_accumulation_steps == 0:
            # The update interval "auto", by which the engine divides each loss.
            engine._config.gradient_accumulation_steps = 1

    return configure_zenflow


def _refuse_nan(engine: Any) -> None:
    """Raise InvalidZenFlow where the step on the selected columns, whose states are float16 too, gives NaN."""
    eps = float((engine.optimizer_params() or {}).get("eps", _EPS))
    if engine.dynamic_loss_scale():
        found = "a dynamic loss scale: the selected columns take a step when gradients have overflowed, too"
    elif eps <= _ZERO_IN_FP16:
        found = f"eps={eps:g}, which is 0 in float16: a gradient of 0 makes its parameter NaN"
    else:
        return
    raise InvalidZenFlow(
        what="ZenFlow cannot train in fp16 with these options",
        found=found,
        expected='bf16, or fp16 with a "loss_scale" above 0 and an "eps" of 1e-7 or more',
        do='replace the fp16 section of the configuration by "bf16": {"enabled": true}',
    )


# ------------------------------------------------------------------------------------------- inference

#: Of deepspeed.inference.v2.modules.implementations: those that run on devices without a number in torch.
_INFERENCE = (
    "linear.blas_fp_linear",
    "post_norm.cuda_post_ln",
    "pre_norm.cuda_pre_ln",
    "pre_norm.cuda_pre_rms",
)


def patch_inference(package: ModuleType, current: Callable[[], Any]) -> None:
    """Let modules of `deepspeed.inference.v2`, which has just been imported, allocate on a device with a name.

    They allocate with `device=get_accelerator().current_device()`, a number, which torch reads as a device of the one
    accelerator that it was built for.
    """
    for name in _INFERENCE:
        module = sys.modules.get(f"{package.__name__}.{name}")
        if hasattr(module, "get_accelerator"):
            module.get_accelerator = lambda: _WithNamedDevice(current())  # type: ignore[union-attr]


class _Wrapped:
    """Accelerator of which a subclass replaces one method for DeepSpeed."""

    def __init__(self, accel: Any) -> None:
        self._accel = accel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accel, name)


class _WithNamedDevice(_Wrapped):
    """Return a torch.device as the current device: the CPU has no index in torch."""

    def current_device(self) -> torch.device:
        import torch  # accel_core needs none

        return torch.device(self._accel.current_device_name())


class _WithVariable(_Wrapped):
    """Return a visible-devices variable that is never set: DeepSpeed's runner reads the first one."""

    def visible_devices_envs(self) -> list[str]:
        return [""]


# ------------------------------------------------------------------------- CUDA that is any accelerator

#: Modules that pass "cuda" to torch where they mean the accelerator, or no device type, which then is CUDA's.
CUDA_ONLY = (
    "deepspeed.nvme.torch_fastio_engine",
    "deepspeed.nvme.torch_io",
    "deepspeed.runtime.torch_autocast",
    "deepspeed.runtime.zenflow.engine_stage3",
)


def patch_torch(module: Any, current: Callable[[], Any]) -> None:
    """Let one of `CUDA_ONLY`, which has just been imported, use the accelerator's device type."""
    module.torch = _TorchOfAccelerator(module.torch, current)


class _TorchOfAccelerator:
    """torch, with the functions of which these modules mean another device type."""

    def __init__(self, torch: Any, current: Callable[[], Any]) -> None:
        self._torch, self._current = torch, current

    def is_autocast_enabled(self) -> bool:
        return bool(self._torch.is_autocast_enabled(self._current().device_name()))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._torch, name)
        return functools.partial(self._made, value) if name in ("randint", "tensor", "zeros") else value

    def _made(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if isinstance(device := kwargs.get("device"), str):
            kwargs["device"] = re.sub(r"^cuda\b", self._current().device_name(), device)
        return function(*args, **kwargs)


# ---------------------------------------------------------------------------- the `deepspeed` command

_HOST = "localhost"
Slots = Mapping[str, Sequence[int | str]]


def patch_runner(module: Any, current: Callable[[], Any]) -> None:
    """Let the `deepspeed` command start ranks on devices of a visible-devices variable, and on no others.

    `deepspeed.launcher.runner`, which has just been imported, unsets the variable, counts the devices, and takes the
    variable's items for numbers below that count. A runtime that has read the variable counts the visible devices
    only. With `--num_gpus` the runner starts ranks on the machine's first devices, which may be another job's.
    """
    if hasattr(module, "parse_args") and hasattr(module, "parse_inclusion_exclusion"):
        mask = _Mask(module, current)
        module.parse_args = mask.parse_args
        module.parse_inclusion_exclusion = mask.active


def _devices_of(rule: VisibleDevices | None, accelerator: Any, value: str) -> list[str]:
    """Return the items of the variable that the runtime uses, and warn of the others."""
    if rule is None:
        return [item.strip() for item in value.split(",") if item.strip()]
    count = accelerator.device_count()
    for remark in rule.remarks(count):
        _log.warning("%s", remark)
    return rule.used(value, count)


class _Mask:
    """The items of the variable, taken from the runner, which would read them differently."""

    def __init__(self, module: Any, current: Callable[[], Any]) -> None:
        self._parse, self._resolve = module.parse_args, module.parse_inclusion_exclusion
        self._module, self._current = module, current
        self._name, self._items, self._ranks, self._restricts = "", list[str](), -1, True

    def parse_args(self, *given: Any, **named: Any) -> Any:
        """Return DeepSpeed's options without a number of devices, which `active` applies."""
        args = self._parse(*given, **named)
        accelerator = self._current()
        variables = accelerator.visible_devices_envs()
        self._restricts = bool(variables)
        if not variables:
            self._module.get_accelerator = lambda: _WithVariable(accelerator)
            return args
        self._name = variables[0]
        value, rule = os.environ.get(self._name, ""), visible.of(accelerator)
        # hpu has a variable for DeepSpeed's sake only, which restricts nothing.
        unread = Feature.INDEXED_DEVICES in getattr(accelerator, "traits", {})
        if not value.strip() or unread or args.num_nodes > 1 or os.path.isfile(args.hostfile):
            return args
        if args.num_gpus >= 0 and (args.include or args.exclude):
            return args  # the runner refuses both together
        if later := next((name for name in getattr(rule, "later", ()) if os.environ.get(name)), ""):
            raise self._refused(f"{later}={os.environ[later]}", "one of the two variables")
        self._items, self._ranks = _devices_of(rule, accelerator, value), args.num_gpus
        if not self._items:
            raise self._refused("no device of this machine", "at least one")
        args.num_gpus = args.num_nodes = -1
        del os.environ[self._name]
        return args

    def active(self, pool: Mapping[str, int], include: str, exclude: str) -> Slots:
        """Return the devices of this host: the variable's, of these the first `--num_gpus`, or those of the filter."""
        if not self._items:
            found: Slots = self._resolve(pool, include, exclude)
            if not self._restricts:
                _refuse_choice(found)
            return found
        if not include and not exclude:
            if not self._ranks <= len(self._items) or self._ranks == 0:
                raise self._refused(f"--num_gpus {self._ranks}", f"1 to {len(self._items)}")
            return self._slots(self._items[: self._ranks if self._ranks > 0 else None])
        if not all(item.isdecimal() for item in self._items):
            raise self._refused(include or exclude, "no filter: the variable has names, a filter has numbers")
        known = [int(item) for item in self._items]
        chosen = self._resolve({_HOST: max(known) + 1}, include, exclude).get(_HOST, ())
        if include and set(chosen) - set(known):
            raise self._refused(f"--include {include}", f"some of {_HOST}:{','.join(self._items)}")
        return self._slots([item for item in known if item in chosen] if exclude else chosen)

    def _slots(self, items: Sequence[int | str]) -> Slots:
        return collections.OrderedDict({_HOST: [int(i) if str(i).isdecimal() else i for i in items]})

    def _refused(self, found: str, expected: str) -> InvalidEnvironment:
        return InvalidEnvironment(
            what=f"ranks cannot be started on devices outside of {self._name}",
            found=f"{found}, with {self._name}={','.join(self._items) or os.environ.get(self._name)}",
            expected=expected,
            do=f"name some of these devices, or unset {self._name} if this job may use others",
        )


def _refuse_choice(found: Slots) -> None:
    """Raise if other devices than a host's first ones are chosen where rank i always has device i."""
    for host, slots in found.items():
        if list(slots) != list(range(len(slots))):
            raise InvalidEnvironment(
                what=f"the devices of ranks cannot be chosen on {host}",
                found=f"devices {', '.join(map(str, slots))}, and no variable that restricts a process to devices",
                expected="the first devices of a host: rank i uses device i",
                do="leave out --include and --exclude; --num_gpus is the number of ranks",
            )


# ------------------------------------------------------------------------------ what other packages change

#: Entry points: the name is a module of DeepSpeed, the value a function that gets it after its import.
GROUP = "accel.deepspeed_patches"
#: Functions that return rows (name, whether it is on, reason) without importing DeepSpeed: lines of `accel doctor`.
STATUS_GROUP = "accel.deepspeed_patch_status"


@dataclass(frozen=True)
class Status:
    """State of a change of DeepSpeed: on, or the reason why not. kind: name of its entry point."""

    name: str
    on: bool
    reason: str
    kind: str


def package_hooks() -> list[tuple[str, Callable[[ModuleType], None]]]:
    """Return (module of DeepSpeed, import hook) for each module that a package changes; several may change one."""
    return [(point.name, _package_hook(point)) for point in importlib.metadata.entry_points(group=GROUP)]


def _package_hook(point: importlib.metadata.EntryPoint) -> Callable[[ModuleType], None]:
    def patch(module: ModuleType) -> None:
        if contract.is_registered():
            try:
                point.load()(module)
            except Exception:
                _log.exception("stock DeepSpeed for %s", point.name)

    return patch


def examined() -> tuple[Status, ...]:
    """Return what a process that imports deepspeed would change."""
    points = importlib.metadata.entry_points(group=STATUS_GROUP)
    rows = ((*row, point.name) for point in points for row in point.load()())
    return tuple(Status(name, on, reason, kind) for name, on, reason, kind in rows)
