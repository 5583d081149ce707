# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Initial parameters of a record: kept when a model first runs, and loaded when it first runs in a replay.

A rank keeps what it holds: the whole model, or under ZeRO 3 and FSDP its part. The replay needs the same ranks.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path

import torch
from torch.nn.parameter import is_lazy

from accel_core.lost_devices import is_lost


class InitialParameters:
    """Keeps or loads the parameters of each model of one rank, in the order in which the models first run."""

    def __init__(self, folder: Path, limit: int, load: bool) -> None:
        """folder: of the record. limit: bytes of all models together. load: whether to load, not to keep."""
        self._folder, self._left, self._load = folder, limit, load
        self._models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._seen: dict[int, weakref.ref[torch.Tensor]] = {}
        self._files = 0

    def of(self, model: torch.nn.Module, rank: int) -> str:
        """Keep or load the parameters of a model that runs; return the note for the record, or ''."""
        if model in self._models:
            return ""
        self._models.add(model)
        held = self._held(model)
        if not held:
            return ""
        file = self._folder / f"rank{rank}.{self._files}.pt"
        self._files += 1
        what = f"initial parameters of {type(model).__name__}"
        try:
            return self._loaded(model, held, file, what) if self._load else self._kept(held, file, what)
        except Exception as error:  # whatever a file or a disk does must not end the program
            if any(map(is_lost, {tensor.device for tensor in held.values()})):
                raise  # the program's error, which a device may raise only once
            done = "loaded" if self._load else "kept"
            return f"{what} are not {done}: {type(error).__name__}: {error}"[:300]

    def _held(self, model: torch.nn.Module) -> dict[str, torch.Tensor]:
        """Return the memory of this rank by name; without parameters of a model that ran before."""
        found = {}
        for name, parameter in model.named_parameters():
            known = self._seen.get(id(parameter))
            if (known is not None and known() is parameter) or is_lazy(parameter):
                continue
            self._seen[id(parameter)] = weakref.ref(parameter)
            # DeepSpeed's part of a rank under ZeRO 3.
            for key, tensor in ((name, parameter), (f"{name}, part", getattr(parameter, "ds_tensor", None))):
                if isinstance(tensor, torch.Tensor) and tensor.numel() and tensor.device.type != "meta":
                    found[key] = getattr(tensor, "to_local", lambda tensor=tensor: tensor)().detach()
        return found

    def _kept(self, held: Mapping[str, torch.Tensor], file: Path, what: str) -> str:
        size = sum(tensor.nbytes for tensor in held.values())
        if size > self._left:
            return f"{what} are not kept: they have {_mib(size)}, and {_mib(self._left)} of --parameters are left"
        self._left -= size
        try:
            torch.save({name: tensor.cpu().clone() for name, tensor in held.items()}, file)
        except BaseException:
            file.unlink(missing_ok=True)
            raise
        return f"{what} are kept: {_mib(size)}"

    def _loaded(self, model: torch.nn.Module, held: Mapping[str, torch.Tensor], file: Path, what: str) -> str:
        if not file.exists():
            return f"{what} are not loaded: the record has none"
        kept = torch.load(file, map_location="cpu", weights_only=True)
        shapes = [{name: tuple(tensor.shape) for name, tensor in one.items()} for one in (held, kept)]
        if shapes[0] != shapes[1]:
            other = sorted(f"{name} {list(shape)}" for name, shape in shapes[0].items() ^ shapes[1].items())
            return f"{what} are not loaded: the record has others: {', '.join(other[:4])}"
        for name, tensor in held.items():
            tensor.copy_(kept[name])
        for module in model.modules():
            # DeepSpeed's optimizers have copies in float32, which they made before.
            refresh = getattr(module.__dict__.get("optimizer"), "refresh_fp32_params", None)
            if refresh is not None:
                refresh()
        return f"{what} are loaded from the record: {len(held)} tensors"


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"
