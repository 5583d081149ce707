# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Which engine carries out a plan."""

from __future__ import annotations

import importlib.metadata

from accel_core.launch.engine_errors import UnknownEngine
from accel_core.launch.engines.engine import Engine
from accel_core.launch.engines.local import Local, NoSsh
from accel_core.launch.engines.mpi import IntelMpi, Mpich, OpenMpi
from accel_core.launch.engines.pdsh import Pdsh
from accel_core.launch.engines.slurm import Slurm
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan

ENTRY_POINT_GROUP = "accel.launchers"
_OWN: dict[str, type[Engine]] = {
    "local": Local,
    "impi": IntelMpi,
    "openmpi": OpenMpi,
    "mpich": Mpich,
    "slurm": Slurm,
    "pdsh": Pdsh,
}


def choose(plan: Plan, options: Options) -> Engine:
    """Return the engine of `--no_ssh` or `--launcher`; without them `local` for one host, pdsh for several."""
    if options.no_ssh:
        return NoSsh()
    several = len(plan.hosts) > 1 or options.force_multi
    return named(options.launcher.lower() or ("pdsh" if several else "local"))


def named(name: str) -> Engine:
    """Return the engine of this name, our own or another package's; raises UnknownEngine."""
    if name in _OWN:
        return _OWN[name]()
    points = {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name not in points:
        raise UnknownEngine(
            what=f"no engine is called {name!r}",
            found=f"--launcher {name}",
            expected=f"one of {', '.join([*_OWN, *sorted(points)])}",
            do=f"choose one of them, or install the package that has an entry point {name!r} of the group "
            f"{ENTRY_POINT_GROUP}",
        )
    point = points[name]
    try:
        loaded = point.load()
        engine: Engine = loaded() if isinstance(loaded, type) else loaded
        missing = [part for part in ("check", "supervisor") if not callable(getattr(engine, part, None))]
        if missing:
            raise TypeError(f"{type(engine).__name__} without {' and '.join(missing)}")
    except Exception as error:
        raise UnknownEngine(
            what=f"the engine {name!r} cannot be used",
            found=f"{type(error).__name__}: {error} (from {point.value})",
            expected="an accel_core.launch.engines.engine.Engine",
            do="upgrade or remove the package that declares it",
        ) from error
    return engine
