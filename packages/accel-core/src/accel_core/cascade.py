# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's cascade: the one table of core that names vendors.

It gives the order in which accelerators are tried, and the sentence for a vendor whose package is not
installed. Everything else about a vendor is stated by its package; what DeepSpeed's own backends need is in
`accel_core.upstream.backends`.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class CascadeEntry:
    """One name of the cascade.

    priority:     the present accelerator with the highest priority is chosen.
    class_name:   the accelerator class users know.
    requires:     its runtime, as in messages: completes "<class_name> requires …".
    distribution: the package of this project that supports it; empty if only DeepSpeed does.
    variant:      distinguishes entries that share a key.
    """

    key: str
    priority: int
    class_name: str
    requires: str
    distribution: str
    variant: str = ""

    def sentence(self) -> str:
        """Return a sentence such as `NPU_Accelerator requires torch_npu`."""
        return f"{self.class_name} requires {self.requires}"


_XPU_RUNTIME = "intel_extension_for_pytorch (or torch >= 2.8 with XPU)"

CASCADE = (
    CascadeEntry("xpu.external", 1000, "XPU_Accelerator", "intel_extension_for_deepspeed", "accel-xpu"),
    CascadeEntry("xpu", 900, "XPU_Accelerator", _XPU_RUNTIME, "accel-xpu", variant="ipex"),
    CascadeEntry("xpu", 800, "XPU_Accelerator", _XPU_RUNTIME, "accel-xpu", variant="native"),
    CascadeEntry("npu", 700, "NPU_Accelerator", "torch_npu", "accel-npu"),
    CascadeEntry("sdaa", 600, "SDAA_Accelerator", "torch_sdaa", "accel-sdaa"),
    CascadeEntry("mps", 500, "MPS_Accelerator", "torch.mps", "accel-mps"),
    CascadeEntry("hpu", 400, "HPU_Accelerator", "habana_frameworks.torch.hpu", "accel-hpu"),
    CascadeEntry("mlu", 300, "MLU_Accelerator", "torch_mlu", "accel-mlu"),
    CascadeEntry("cuda", 200, "CUDA_Accelerator", "a torch build with CUDA or ROCm", "accel-cuda"),
    CascadeEntry("cpu", 0, "CPU_Accelerator", "torch", "accel-cpu"),
)

#: DeepSpeed has a backend for these and this project has no package.
UPSTREAM_ONLY = (
    CascadeEntry("supa", 250, "SUPA_Accelerator", "torch_supa", ""),
    CascadeEntry("klxpu", 225, "KLXPU_Accelerator", "torch_xmlir", ""),
)

ENTRIES = CASCADE + UPSTREAM_ONLY
CPU_KEY = "cpu"

#: Values of DS_ACCELERATOR that are valid whatever is installed, in DeepSpeed's order.
SUPPORTED_ACCELERATOR_LIST = ["cuda", "cpu", "xpu", "xpu.external", "npu", "mps", "hpu", "mlu", "sdaa"]


def entries(key: str) -> tuple[CascadeEntry, ...]:
    """Return the entries with this key, highest priority first; empty for a third party's key."""
    return tuple(entry for entry in ENTRIES if entry.key == key)


def priority(key: str, variant: str = "") -> int:
    """Return the priority of a key and variant; raises KeyError if the cascade does not have them."""
    for entry in entries(key):
        if entry.variant == variant or not variant:
            return entry.priority
    raise KeyError(f"{key} {variant}".strip())


# ------------------------------------------------------------------------------ how to install them

#: Whether the packages of this project are on the package index; until then `pip install accel-cpu` would fail.
ON_INDEX = False

_KERNELS = "accel-ops"  # every vendor package requires it
_METHODS = "accel-zero"  # which requires it, too; accel-cpu requires both
_SIMULATOR, _TESTKIT, _REHEARSAL = "accel-sim", "accel-testkit", "accel-rehearse"
_VENDORS = {entry.distribution for entry in CASCADE}
_OWN = {*_VENDORS, _KERNELS, _METHODS, _SIMULATOR, _TESTKIT, _REHEARSAL}
_OWN |= {"accel-compare", "accel-core", "accel-launch", "accel-port"}
_WHERE = " (in a checkout of accel: its packages are on no index yet)"


def pip_install(*requirements: str, options: str = "") -> str:
    """Return the command that installs these packages; it can be run as printed.

    requirements: names, with or without version ranges; other projects' packages come from the index.
    options:      options of `pip install`, such as `--upgrade`.
    """
    names = [re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0] for requirement in requirements]
    from_checkout = set() if ON_INDEX else _OWN.intersection(names)
    arguments = [
        f"./packages/{name}" if name in from_checkout else shlex.quote(requirement)
        for name, requirement in zip(names, requirements, strict=True)
    ]
    needed = {_KERNELS} if from_checkout & {*_VENDORS, _METHODS, _TESTKIT} else set()
    if "accel-cpu" in from_checkout:
        needed.add(_METHODS)
    if _REHEARSAL in from_checkout:
        needed.add(_SIMULATOR)
    arguments[:0] = [f"./packages/{name}" for name in sorted(needed) if not distribution_version(name)]
    return " ".join(["pip install", *filter(None, [options]), *arguments]) + _WHERE * bool(from_checkout)


def distribution_version(name: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
