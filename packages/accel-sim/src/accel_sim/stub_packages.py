# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stub packages under the vendors' real import names, in a folder on the PYTHONPATH of child processes.

The folder is made from the vendor table: packages that call `stub_import.populate`, their metadata for
importlib.metadata, device files for `ACCEL_SYSROOT`, and the vendors' command-line tools, first on PATH.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from accel_core import env, simulated
from accel_core.native import trust
from accel_sim import behaviours, build, settings, vendor_tools, vendors
from accel_sim.vendors import SimVendor

#: Folders in the cache: stub packages, and drivers that `real_runtime` emulates.
_STUBS, _DRIVERS = "stub_packages", "emulated-cann"
_HEAD = "from accel_sim import stub_import\n\n"
_TOOLS = "tools"
_POPULATE = _HEAD + "stub_import.populate(__name__)\n"


def environment(
    key: str,
    *,
    devices: int | None = None,
    memory: str | int | None = None,
    behaviour: Iterable[str] = (),
    race: bool = False,
    deferred: bool = False,
    like_hardware: bool = False,
    fail: Iterable[str] = (),
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment in which child processes have the device. memory: bytes, or text as `8GiB`.

    key: one of ours, or a JSON file that describes the device.
    race, deferred: the modes of docs/simulated-devices.md that check the order of work.
    like_hardware: its mode without what holds only for simulated devices; one device, unless `devices` says more.
    fail: operators that fail on the device.
    The device of an outer `accel sim` is replaced. Raises `InvalidInput`, `NotSimulated`.
    """
    vendor = vendors.find(key)
    build.check_torch(vendor.key)
    result = without_outer(os.environ if base is None else base)
    if like_hardware:
        result.setdefault(settings.DEVICES.name, "1")
    for variable, value in ((settings.DEVICES, devices), (settings.MEMORY, memory)):
        if value is not None:
            result[variable.name] = str(value)
    for switch, on in ((settings.HARDWARE, like_hardware), (settings.RACE, race), (settings.DEFER, deferred)):
        if on:
            result[switch.name] = "1"
    if failing := ",".join(fail):
        result[settings.FAIL.name] = failing
    chosen = frozenset(behaviour)
    behaviours.check(chosen)
    if chosen:
        result[settings.BEHAVIOUR.name] = ",".join(sorted(chosen))
    count = settings.count(result.get(settings.DEVICES.name, settings.DEVICES.default))
    settings.size(result.get(settings.MEMORY.name, settings.MEMORY.default))
    files = {**_packages(vendor, chosen), **_metadata(vendor), **_system(vendor, count, chosen)}
    folder = _written(vendor, files)
    result[settings.DEVICE.name] = vendors.setting(key)
    result["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), result.get("PYTHONPATH", "")]))
    result["PATH"] = os.pathsep.join(filter(None, [str(folder / _TOOLS), result.get("PATH", os.defpath)]))
    result[env.SYSROOT.name] = str(folder / "sysroot")
    result.update(
        {name: value.format(sysroot=folder / "sysroot") for name, value in vendor.environment.items()}
    )
    return result


def is_set_up(environment: Mapping[str, str]) -> bool:
    """Return whether the first folder of PYTHONPATH is that of a simulated device."""
    first = environment.get("PYTHONPATH", "").partition(os.pathsep)[0]
    return first.startswith(f"{trust.default_cache() / _STUBS}{os.sep}")


def without_outer(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the files of the device, or of the emulated driver, that it has."""
    cache = trust.default_cache()
    inside = tuple(f"{cache / name}{os.sep}" for name in (_STUBS, _DRIVERS))
    result = {}
    for name, value in base.items():
        paths = [path for path in value.split(os.pathsep) if not path.startswith(inside)]
        if name != simulated.RUNTIME.name and (paths or not value):
            result[name] = os.pathsep.join(paths)
    return result


def tools(vendor: SimVendor) -> str:
    """Return the folder of the command-line tools that this vendor's machine has."""
    return str(_written(vendor, {}) / _TOOLS)


def _written(vendor: SimVendor, files: dict[str, str]) -> Path:
    scripts = {f"{_TOOLS}/{name}": text for name, text in vendor_tools.scripts(vendor).items()}
    files = files | scripts
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    parent = trust.cache_folder() / _STUBS
    target = parent / f"{vendor.key}-{digest}"
    if target.is_dir():
        trust.check_tree(target)  # it is put on the path of Python
        return target
    parent.mkdir(mode=0o700, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=parent))
    for name, text in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if name in scripts:
            path.chmod(0o755)
    try:
        work.rename(target)
    except OSError:  # another process was first
        shutil.rmtree(work)
        trust.check_tree(target)
    return target


def _packages(vendor: SimVendor, chosen: frozenset[str]) -> dict[str, str]:
    files: dict[str, str] = {}
    for package in vendor.packages:
        if package == "habana_frameworks":
            files |= {
                f"{package}/__init__.py": "",
                f"{package}/torch/__init__.py": _POPULATE,
                f"{package}/autoload/__init__.py": _HEAD + _habana_autoload(),
            }
        else:
            version = f"__version__ = {vendor.distribution[1]!r}\n"
            done = "stub_import.transfer()" if vendor.key == "supa" else "pass  # importing it is all"
            autoload = f"\n\ndef _autoload():\n    {done}\n"
            folder = PurePosixPath(*package.split("."))
            files |= {f"{parent}/__init__.py": "" for parent in folder.parents[:-1]}
            files[f"{folder}/__init__.py"] = _POPULATE + version + autoload
    if vendor.key in ("npu", "supa"):
        files[f"torch_{vendor.key}/contrib/transfer_to_{vendor.key}.py"] = _HEAD + "stub_import.transfer()\n"
    if vendor.key == "xpu" and "xpu.ipex-other-torch" in chosen:
        files["intel_extension_for_pytorch/__init__.py"] = _HEAD + "stub_import.fail_import(__name__)\n"
    return files


def _habana_autoload() -> str:
    return (
        "import os\n\n\ndef __autoload():\n"
        "    if os.environ.get('PT_HPU_AUTOLOAD', '0' if os.environ.get('PT_HPU_LAZY_MODE', '1') == '1' else '1') "
        "== '1':\n        stub_import.autoload('habana_frameworks.torch')\n"
    )


def _metadata(vendor: SimVendor) -> dict[str, str]:
    name, version = vendor.distribution
    folder = f"{name}-{version}.dist-info"
    files = {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        "Summary: stub of accel-sim for a simulated device\n",
        f"{folder}/top_level.txt": "".join(f"{package}\n" for package in vendor.packages),
        f"{folder}/INSTALLER": "accel-sim\n",
    }
    if vendor.entry_point[0]:
        files[f"{folder}/entry_points.txt"] = "[torch.backends]\n{} = {}\n".format(*vendor.entry_point)
    compilers = _COMPILERS.get(vendor.key, ())
    if compilers:
        files[f"{folder}/entry_points.txt"] += "\n[torch_dynamo_backends]\n"
    for compiler in compilers:
        files[f"{folder}/entry_points.txt"] += f"{compiler} = torch._dynamo.backends.debugging:eager\n"
    return files


#: The vendors' backends of torch.compile; the simulated ones compile nothing.
_COMPILERS = {"hpu": ("hpu_backend",), "npu": ("npu", "npugraphs", "npugraph_ex")}


def _system(vendor: SimVendor, devices: int, chosen: frozenset[str]) -> dict[str, str]:
    files = {"sysroot/README": "Device files of a simulated machine; ACCEL_SYSROOT points here.\n"}
    for number in range(devices if behaviours.has_device_files(vendor.key, chosen) else 0):
        files |= {f"sysroot/{node.format(number)}": "" for node in vendor.device_nodes}
    if vendor.torch_build:
        # What is installed is a torch for CPUs; evidence reads the build from here.
        lines = (f"{name} = {value!r}\n" for name, value in vendor.torch_build.items())
        files["sysroot/torch/version.py"] = "".join(lines)
    if vendor.key == "npu":
        files[f"sysroot/{_ASCEND}/ascend_toolkit_install.info"] = (
            "package_name=Ascend-cann-toolkit\nversion=8.3.RC1\n"
        )
        files |= {f"sysroot/{_ASCEND}/{part}/README": "" for part in ("runtime", "compiler", "opp")}
    return files


_ASCEND = "usr/local/Ascend/ascend-toolkit/latest"
