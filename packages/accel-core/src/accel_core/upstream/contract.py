# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Registration of our interface as a virtual subclass of upstream's, for `isinstance` in DeepSpeed.

Deriving from upstream's class would make an import cycle, because the import of deepspeed calls
`get_accelerator()`. The interface is registered instead, and upstream's concrete members that it lacks are
copied to it, once.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from packaging.specifiers import SpecifierSet

from accel_core import env
from accel_core.__about__ import __version__
from accel_core.devices import CPU_KEY
from accel_core.errors import UnsupportedUpstream
from accel_core.install import pip_install
from accel_core.interface import DeepSpeedAccelerator, PinnedAllocator, PinnedMemoryInterface
from accel_core.selection import candidates, current
from accel_core.selection.candidates import DeepSpeed, State
from accel_core.vendor import Vendor, deepspeed_folder, distribution_version, in_range

#: Releases of DeepSpeed that the tests use.
SUPPORTED = SpecifierSet(">=0.18.7,<0.20")
#: Releases of DeepSpeed with which training was tested (docs/upstream.md).
TRIED = SpecifierSet(">=0.18.7,<=0.19.8")
#: Releases of torch with which tests/torch_versions passed (its runs.json). All packages require the lower bound.
TRIED_TORCH = SpecifierSet(">=2.8,<2.16")

_log = logging.getLogger("accel_core")
_registered = False


def is_registered() -> bool:
    """Return whether `register_interface` has succeeded."""
    return _registered


def register_interface() -> bool:
    """Register our interface; returns False if this release of DeepSpeed has abstract methods that we lack.

    Raises UnsupportedUpstream instead under ACCEL_STRICT=1.
    """
    global _registered
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream

    version, missing = _missing()
    if missing:
        error = _unsupported_release(version, missing)
        if env.STRICT.on():
            raise error
        _log.warning("%s", error)
        return False
    if not in_range(version, str(SUPPORTED)):
        _log.warning(
            "deepspeed %s is outside %s, the releases this accel-core was tested with", version, SUPPORTED
        )
    Upstream.register(DeepSpeedAccelerator)
    for name, member in vars(Upstream).items():
        if not hasattr(DeepSpeedAccelerator, name):
            setattr(DeepSpeedAccelerator, name, member)
    if Upstream not in current.ACCELERATOR_BASES:
        current.ACCELERATOR_BASES.append(Upstream)
    PinnedMemoryInterface.host_pins = upstream_pins()
    _registered = True
    return True


def without_cpu(stock: Callable[[], Any], deepspeed: DeepSpeed) -> Callable[[], Any]:
    """Return DeepSpeed's detection, which raises where it finds the CPU and a device here has no backend in DeepSpeed.

    For a DeepSpeed that `register_interface` refused. It is `stock` itself if no installed vendor serves such a device.
    """
    vendors = [each for each in candidates.discover().vendors if each.key not in (deepspeed.keys() or ())]

    def is_here(vendor: Vendor) -> bool:
        found = candidates.of_vendor(vendor)
        if found.hardware is None and found.state is State.PENDING:
            return candidates.confirmed(found, vendor).state is State.PRESENT
        return bool(found.hardware)

    @functools.wraps(stock)
    def get_accelerator() -> Any:
        accelerator = stock()
        if env.DS_ACCELERATOR.raw() is None and accelerator.device_name() == CPU_KEY:
            lost = ", ".join(vendor.key for vendor in vendors if is_here(vendor))
            if lost:
                error = _unsupported_release(*_missing())
                error.do += f", or, to run without {lost}, which is in this machine, set DS_ACCELERATOR=cpu"
                raise error
        return accelerator

    return get_accelerator if vendors else stock


def _missing() -> tuple[str, list[str]]:
    """Return the version of DeepSpeed, and the methods that it asks for and we lack."""
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream

    missing = sorted(name for name in Upstream.__abstractmethods__ if not hasattr(DeepSpeedAccelerator, name))
    return distribution_version("deepspeed") or "of unknown version", missing


def _unsupported_release(version: str, missing: list[str]) -> UnsupportedUpstream:
    return UnsupportedUpstream(
        f"deepspeed {version} asks accelerators for methods that this accel-core does not have: "
        f"{', '.join(missing)}; deepspeed {version}, accel-core {__version__}",
        do=(
            f"{pip_install('accel-core', options='--upgrade')}, or pip install 'deepspeed{SUPPORTED}'; "
            "DeepSpeed's own detection serves until then"
        ),
    )


class UpstreamPins:
    """DeepSpeed 0.19's own page-locked allocator (DS_PIN_MEMORY_BACKEND) and its accounting.

    It uses deepspeed.utils at each call, because the backend may be chosen late.
    """

    def active(self) -> Any:
        """Return upstream's allocator if the user has chosen it, else None."""
        from deepspeed.utils.pin_memory import get_active_native_pinned_memory

        return get_active_native_pinned_memory()

    def track(self, nbytes: int) -> None:
        """Add the bytes to upstream's accounting of locked memory."""
        from deepspeed.utils.pin_memory_tracker import track_pinned_memory

        track_pinned_memory(nbytes)


def upstream_pins() -> PinnedAllocator | None:
    """Return DeepSpeed's allocator of locked memory; None for releases without one (0.18)."""
    folder = deepspeed_folder()
    if folder is None or not all(
        (folder / "utils" / f"{name}.py").is_file() for name in ("pin_memory", "pin_memory_tracker")
    ):
        return None
    return UpstreamPins()
