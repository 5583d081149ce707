# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Changes in torch itself by the import of Habana's package: seeds, process groups and, in lazy mode, files."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
from torch import _weights_only_unpickler

from accel_sim.simulation import Simulation


def install(simulation: Simulation) -> None:
    """Replace torch's functions as torch_overwrites.py of gaudi-pytorch-bridge 1.19 does."""
    places: Any = torch
    _replace(places, _seeding(simulation))
    places.random.fork_rng = _forking()
    if torch.distributed.is_available():
        _replace(torch.distributed, _groups())
    if simulation.simulated["is_lazy"]():
        _replace(places, _files())
        _replace(torch.serialization, _reading())


def _replace(place: Any, functions: dict[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        setattr(place, name, functools.wraps(getattr(place, name))(function))


def _seeding(simulation: Simulation) -> dict[str, Callable[..., Any]]:
    seed_host, draw = torch.manual_seed, torch.seed

    def manual_seed(seed: Any) -> torch.Generator:
        simulation.simulated["manual_seed"](seed)
        return seed_host(seed)

    def seed() -> int:
        drawn = draw()
        simulation.simulated["manual_seed_all"](drawn)
        return drawn

    return {"manual_seed": manual_seed, "seed": seed}


def _forking() -> Callable[..., Any]:
    fork = torch.random.fork_rng

    @functools.wraps(fork)
    def fork_rng(
        devices: Any = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str | None = None,
    ) -> Any:
        return fork(devices, enabled, _caller, _devices_kw, device_type or "hpu")

    return fork_rng


def _groups() -> dict[str, Callable[..., Any]]:
    """Return the functions that make process groups, without the parameters that Habana's do not take."""
    distributed: Any = torch.distributed
    init, new = distributed.init_process_group, distributed.new_group

    def init_process_group(
        backend: str,
        init_method: str | None = None,
        timeout: timedelta = timedelta(minutes=30),
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        group_name: str = "",
        pg_options: Any = None,
    ) -> None:
        init(backend, init_method, timeout, world_size, rank, store, group_name, pg_options)

    def new_group(
        ranks: Any = None,
        timeout: timedelta = timedelta(minutes=30),
        backend: str | None = None,
        pg_options: Any = None,
    ) -> Any:
        return new(ranks, timeout, backend, pg_options)

    return {"init_process_group": init_process_group, "new_group": new_group}


def _rebuilt(value: Any, change: Callable[[torch.Tensor], Any], kept: tuple[type, ...] = ()) -> Any:
    """Return dicts, lists and tuples that are not of the types `kept` as plain ones, with their tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _rebuilt(item, change, kept) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, kept):
        items = [_rebuilt(item, change, kept) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _files() -> dict[str, Callable[..., Any]]:
    """Return save and load of lazy mode: files have tensors of the CPU, apart from those inside of other objects."""
    save_host, load_host = torch.save, torch.load

    def save(
        obj: object,
        f: Any,
        pickle_module: Any = pickle,
        pickle_protocol: int = 4,
        _use_new_zipfile_serialization: bool = True,
        _disable_byteorder_record: bool = False,
    ) -> None:
        obj = _rebuilt(obj, lambda tensor: tensor.data.detach().clone().cpu(), (torch.Size,))
        save_host(
            obj, f, pickle_module, pickle_protocol, _use_new_zipfile_serialization, _disable_byteorder_record
        )

    def load(
        f: Any,
        map_location: Any = None,
        pickle_module: Any = pickle,
        weights_only: bool = False,
        mmap: bool | None = None,
        **options: Any,
    ) -> Any:
        loaded = load_host(
            f, "cpu", None if weights_only else pickle_module, weights_only=weights_only, mmap=mmap, **options
        )
        place = map_location.get("cpu", "cpu") if isinstance(map_location, dict) else map_location
        if place is None or place == "cpu":
            return loaded
        if callable(place):
            return _rebuilt(loaded, lambda tensor: place(tensor, tensor.device))
        return _rebuilt(loaded, lambda tensor: tensor.to(place))

    return {"save": save, "load": load}


class _WeightsUnpickler(pickle.Unpickler):
    """Unpickler for `weights_only=True` that takes protocol 4, which torch's does not and lazy mode writes."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = _weights_only_unpickler._get_allowed_globals()
        allowed |= _weights_only_unpickler._get_user_allowed_globals()
        if (found := allowed.get(f"{module}.{name}")) is None:
            raise pickle.UnpicklingError(
                f"Unsupported global: {module}.{name}; see torch.serialization.add_safe_globals"
            )
        return found


def _reading() -> dict[str, Callable[..., Any]]:
    read: Any = torch.serialization._load
    weights_only = SimpleNamespace(Unpickler=_WeightsUnpickler)

    def _load(zip_file: Any, map_location: Any, pickle_module: Any, *rest: Any, **options: Any) -> Any:
        module = weights_only if pickle_module is _weights_only_unpickler else pickle_module
        return read(zip_file, map_location, module, *rest, **options)

    return {"_load": _load}
