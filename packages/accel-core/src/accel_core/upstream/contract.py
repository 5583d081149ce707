# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Registration of our interface as a virtual subclass of upstream's, for `isinstance` in DeepSpeed.

Deriving from upstream's class would make an import cycle, because the import of deepspeed calls
`get_accelerator()`. The interface is registered instead, and upstream's concrete members that it lacks are
copied to it, once.
"""

from __future__ import annotations

import logging
from types import ModuleType
from typing import Any

from packaging.specifiers import SpecifierSet

from accel_core import env
from accel_core.errors import UnsupportedUpstream
from accel_core.install_commands import pip_install
from accel_core.interface import DeepSpeedAccelerator, pinned
from accel_core.op_builder import OpBuilder
from accel_core.selection import construct
from accel_core.upstream import pins
from accel_core.vendor import distribution_version, in_range

#: Releases of DeepSpeed that the tests use.
SUPPORTED = SpecifierSet(">=0.18,<0.20")
#: Releases of DeepSpeed and of torch with which training was tested (docs/upstream.md).
TRIED = SpecifierSet(">=0.18.7,<=0.19.8")
TRIED_TORCH = SpecifierSet(">=2.6,<2.16")

_log = logging.getLogger("accel_core")
_registered = False


def is_registered() -> bool:
    """Return whether `register_interface` has succeeded."""
    return _registered


def register_interface(real_accelerator: ModuleType) -> bool:
    """Register our interface; returns False if this release of DeepSpeed has abstract methods that we lack.

    Raises UnsupportedUpstream instead under ACCEL_STRICT=1.
    """
    global _registered
    from deepspeed.accelerator.abstract_accelerator import DeepSpeedAccelerator as Upstream

    version = distribution_version("deepspeed") or "of unknown version"
    missing = sorted(name for name in Upstream.__abstractmethods__ if not hasattr(DeepSpeedAccelerator, name))
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
    if Upstream not in construct.ACCELERATOR_BASES:
        construct.ACCELERATOR_BASES.append(Upstream)
    pinned.PinnedMemoryInterface.host_pins = pins.upstream_pins()
    _registered = True
    return True


def register_builders(upstream_base: Any) -> None:
    """Register our `OpBuilder` as a virtual subclass of upstream's."""
    upstream_base.register(OpBuilder)


def _unsupported_release(version: str, missing: list[str]) -> UnsupportedUpstream:
    return UnsupportedUpstream(
        what=f"deepspeed {version} asks accelerators for methods that this accel-core does not have",
        found=f"{', '.join(missing)}; deepspeed {version}, accel-core {distribution_version('accel-core')}",
        expected=f"deepspeed{SUPPORTED}",
        do=f"{pip_install('accel-core', options='--upgrade')}, or pip install 'deepspeed{SUPPORTED}'; "
        "DeepSpeed's own detection serves until then",
    )
