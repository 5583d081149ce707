# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Actions at the import of torch, of accel_core and of a vendor package.

torch calls `autoload` at the end of `import torch` (entry point group torch.backends). It turns any exception raised
here into a failed `import torch`, so nothing here raises. No accelerator is selected: a finder waits for `import
deepspeed`, which loads the code of the hooks.

A vendor package gets its `__getattr__` from `lazy_exports`. Importing it therefore imports accel_core, which registers
the hooks. That matters if torch's autoload has not done so: a runtime that is imported before torch (torch_npu)
disables torch's entry points.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

_registered = False


#: They import torch_npu on every machine; one that fails would end the program.
_NPU_BUILDERS = "deepspeed.ops.op_builder.npu"


class DeepSpeedImportFinder:
    """Meta path finder that finds no module. It registers the hooks when `import deepspeed` begins.

    Registering them earlier would load wrapt (fifteen modules) in programs that never import deepspeed.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        # It stays in the path: importlib goes through the list at this moment, and would skip the next finder.
        if name == "deepspeed":
            _register_hooks()
        elif name == "torch_npu" and os.environ.get("ACCEL_BRIDGE") != "0":
            spec = getattr(sys.modules.get(_NPU_BUILDERS), "__spec__", None)
            if getattr(spec, "_initializing", False):
                raise ImportError("torch_npu is not imported for builders of another accelerator", name=name)


def autoload() -> None:
    """Entry point of torch. Importing this package has registered the hooks already."""
    register()
    for step, failure in (
        (find_distributed_backends, "torch.distributed does not find backends by their entry points"),
        (follow_store_address, "torch's store listens on all interfaces"),
    ):
        try:
            step()
        except Exception:
            logging.getLogger("accel_core").exception(failure)


def register() -> None:
    """Register the hooks for the import of deepspeed, or run them now if it is imported. Idempotent."""
    if DeepSpeedImportFinder not in sys.meta_path:
        sys.meta_path.insert(0, DeepSpeedImportFinder)
    if "deepspeed" in sys.modules:
        _register_hooks()


def find_distributed_backends() -> None:
    """Let torch.distributed find backends by their entry points at the first use of their name, as torch 2.14 does."""
    distributed = sys.modules.get("torch.distributed")  # None: torch has not imported it, or has none
    backend = getattr(distributed, "Backend", None)
    c10d = getattr(distributed, "distributed_c10d", None)
    theirs = "_ensure_backend_registered"
    if backend is None or hasattr(backend, theirs) or hasattr(c10d, theirs):
        return
    stock = backend.__new__

    def new(cls: Any, name: Any) -> Any:
        for part in name.lower().split(",") if isinstance(name, str) else ():
            _load_backend(cls, part.rpartition(":")[2])
        return stock(cls, name)

    backend.__new__ = new


def _load_backend(backend: Any, name: str) -> None:
    if name not in backend.backend_list:
        from importlib.metadata import entry_points

        for point in entry_points(group="torch.distributed.backends", name=name):
            point.load()()


def follow_store_address() -> None:
    """Let torch's store of rank 0 listen at ACCEL_STORE_ADDRESS, not on all interfaces of the host. Idempotent.

    The store has no passwords: every client can read and change what the ranks exchange there. torch has no
    option for the address; its store takes a socket that is bound already.
    """
    if not os.environ.get("ACCEL_STORE_ADDRESS"):  # `env` is loaded in ranks only
        return
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # house: its attribute is a function
    create = getattr(rendezvous, name := "_create_c10d_store", None)
    if create is not None and not hasattr(create, "__wrapped__"):
        setattr(rendezvous, name, functools.wraps(create)(functools.partial(_create_store, create)))


def _create_store(
    stock: Callable[..., Any],
    hostname: str,
    port: int,
    rank: int,
    world_size: int,
    timeout: Any,
    use_libuv: bool = True,
) -> Any:
    from accel_core import env

    if rank == 0 and hostname == env.STORE_ADDRESS.get() and not _is_agents_store(hostname, port):
        listening = _listening_socket(hostname, port)
        if listening is not None:
            from torch._C._distributed_c10d import TCPStore  # not exported by torch.distributed

            return TCPStore(
                hostname,
                port,
                world_size,
                is_master=True,
                timeout=timeout,
                multi_tenant=True,
                master_listen_fd=listening.detach(),
                use_libuv=use_libuv,
            )
    return stock(hostname, port, rank, world_size, timeout, use_libuv)


def _is_agents_store(hostname: str, port: int) -> bool:
    """Return whether torch connects to the store of torchrun's agent: torch < 2.15 does so at every address."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return False
    serves = getattr(sys.modules["torch.distributed.rendezvous"], "_agent_store_serves", None)
    return serves is None or bool(serves(hostname, port))


def _listening_socket(hostname: str, port: int) -> socket.socket | None:
    """Return a socket; None where torch has to find out: a port in use, or an address that is not this host's."""
    import socket

    with contextlib.ExitStack() as failed, contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)[0]
        made = failed.enter_context(socket.socket(family, kind))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # two processes may bind, one may listen
        failed.pop_all()
        return made
    return None


def _register_hooks() -> None:
    global _registered
    if not _registered:
        _registered = True
        try:
            from wrapt import register_post_import_hook

            # In the table's order: if deepspeed is imported already they run now, and the later ones need the first.
            for module, hook in pkgutil.resolve_name("accel_core.api:import_hooks")():
                register_post_import_hook(hook, module)
        except Exception:
            logging.getLogger("accel_core").exception("accel_core is not joined to deepspeed")


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, given {name: submodule that defines it}.

    It raises InterfaceMismatch (an ImportError) if the submodule imports a name that this accel-core does not have.
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        except ImportError as error:
            if not needs_newer_core(error):
                raise
            from accel_core.__about__ import __version__  # of an error alone: torch loads this module
            from accel_core.errors import InterfaceMismatch
            from accel_core.install import pip_install

            raise InterfaceMismatch(
                f"{package} needs what the installed accel-core does not have: {error}; accel-core {__version__}",
                do=pip_install("accel-core", options="--upgrade"),
            ) from error
        setattr(sys.modules[package], name, value)
        return value

    return load


def needs_newer_core(error: BaseException) -> bool:
    """Return True for the error of an import of a name or module that this accel-core does not have."""
    # A circular import also raises ImportError for a name, and another release would not help.
    lacks = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "accel_core"
    return lacks and "partially initialized" not in str(error)
