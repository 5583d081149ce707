# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Compiles the emulated CANN for the torch and torch_npu of this interpreter, once, into the user's cache."""

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from accel_core import processes
from accel_core.errors import BuildFailed
from accel_core.native import trust

from . import operators  # accel-sim loads this package from its data, too

_HERE = Path(__file__).parent
_SOURCES = _HERE / "csrc"
_COMPILER = ["g++", "-std=c++20", "-O1", "-fPIC", "-w"]
#: Libraries that torch_npu loads and needs nothing of.
_EMPTY = ("ge_runner", "graph", "acl_tdt_channel", "nnopbase")
#: Files of the runtime's library, libascendcl.so.
_DRIVER = ("driver", "memory", "streams")
#: Libraries on the runtime's: their files, and others that they need. `operators` is made of operators.txt.
_LIBRARIES = {
    "opapi": (("handles", "operators"), ("-ltorch_cpu", "-lc10")),
    "acl_op_compiler": (("graph_operators",), ("-lopapi", "-ltorch_cpu", "-lc10")),
    "hccl": (("hccl",), ("-lopapi", "-ltorch_cpu", "-lc10", "-lrt")),
}
_NAME = re.compile(r"(?:acl|Hccl|rt[A-Z]|Msprof)\w+")


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise BuildFailed(
            f"the emulated CANN cannot be built: no {name} in this environment",
            do="pip install 'torch_npu==2.13.*', with torch's build for the CPU of that release",
        )
    return Path(spec.submodule_search_locations[0])


def folder() -> Path:
    """Return the folder with the libraries, built if the cache lacks them; raises BuildFailed or CacheUnusable."""
    torch, npu = _package("torch"), _package("torch_npu")
    digest = hashlib.sha256()
    for path in (
        *sorted(_SOURCES.iterdir()),
        Path(__file__),
        Path(operators.__file__),
        _HERE / "operators.txt",
    ):
        digest.update(path.read_bytes())
    for package in (torch, npu):
        digest.update((package / "version.py").read_bytes())
    target = trust.cache_folder() / "emulated-cann" / digest.hexdigest()[:16]
    if not target.is_dir():
        print(
            "compiling an emulated CANN for this torch_npu: about two minutes, once",
            file=sys.stderr,
            flush=True,
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as made:
            _build(Path(made), torch, npu)
            if not target.is_dir():  # another process was as fast
                shutil.copytree(made, target, ignore=shutil.ignore_patterns("*.o", "*.cpp", "*.c"))
    return target


def _build(made: Path, torch: Path, npu: Path) -> None:
    third_party = f"{npu}/include/third_party"  # torch_npu 2.12 has the headers of acl there alone
    headers = [f"-I{_SOURCES}", f"-I{npu}/include", f"-I{third_party}/acl/inc", f"-I{third_party}/hccl/inc",
               f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]  # fmt: skip
    table = (_HERE / "operators.txt").read_text(encoding="utf-8")
    (made / "operators.cpp").write_text(operators.source(table), encoding="utf-8")

    def compiled(name: str) -> None:
        source = made / "operators.cpp" if name == "operators" else _SOURCES / f"{name}.cpp"
        # Bodies are torch's operators: optimizing the calls of them takes minutes and gains nothing.
        level = ["-O0"] if name == "operators" else []
        _run(made, *_COMPILER, *level, *headers, "-c", str(source), "-o", f"{name}.o")

    names = ["operators", *_DRIVER, *(name for files, _ in _LIBRARIES.values() for name in files)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compiled, dict.fromkeys(names)))
    _missing(made, npu)
    _link(made, "ascendcl", *(f"{name}.o" for name in _DRIVER), "missing.o", "-pthread")
    runtime = ("-L.", f"-L{torch}/lib", "-Wl,--no-as-needed", "-lascendcl")
    for library in _EMPTY:
        _link(made, library, *runtime)
    for library, (files, others) in _LIBRARIES.items():
        _link(made, library, *(f"{name}.o" for name in files), *runtime, *others)
    # Folders and files that torch_npu's import and accel-npu's probe look for.
    for name in ("home/runtime", "home/compiler", "home/opp", "root/dev", "root/sys"):
        (made / name).mkdir(parents=True)
    (made / "home/ascend_toolkit_install.info").write_text("version=9.1.0\n", encoding="utf-8")
    for device in ("davinci0", "davinci1", "davinci_manager"):
        (made / "root/dev" / device).touch()


def _missing(made: Path, npu: Path) -> None:
    """Compile functions that torch_npu's libraries refer to and nothing emulates: they fail with their names."""
    wanted = {name for path in (*npu.glob("lib/*.so"), *npu.glob("_C*.so")) for name in _names(path, "-u")}
    wanted -= {name for path in made.glob("*.o") for name in _names(path, "--defined-only")}
    calls = "".join(f'int {name}() {{ return emulated_missing("{name}"); }}\n' for name in sorted(wanted))
    text = f'extern "C" {{\nint emulated_missing(const char*);\n{calls}}}\n'
    (made / "missing.cpp").write_text(text, encoding="utf-8")
    _run(made, *_COMPILER, "-c", "missing.cpp", "-o", "missing.o")


def _link(made: Path, library: str, *inputs: str) -> None:
    name = f"lib{library}.so"
    _run(made, "g++", "-shared", f"-Wl,-soname,{name}", "-o", name, *inputs)


def _names(library: Path, which: str) -> list[str]:
    """Return CANN's names that a file refers to (-u), or has (--defined-only)."""
    dynamic = ["-D"] if library.suffix == ".so" else []
    listed = _run(library.parent, "nm", *dynamic, which, str(library))
    last = (line.split()[-1].partition("@")[0] for line in listed.splitlines() if line.strip())
    return [name for name in last if _NAME.fullmatch(name)]


def _run(made: Path, *command: str) -> str:
    """Return the output of a tool; raises BuildFailed."""
    if shutil.which(command[0]) is None:
        raise BuildFailed(
            f"the emulated CANN cannot be built: no {command[0]} on PATH",
            do="install g++ with C++20 and binutils (Debian: apt install g++); they are needed once for each torch_npu",
        )
    ended = processes.run(command, cwd=made)
    if ended.returncode:
        raise BuildFailed(
            f"the emulated CANN does not compile for this torch_npu: {command[0]} ends with {ended.returncode}",
            do="use torch_npu 2.12 or 2.13",
            details=ended.stderr[-2000:],
        )
    return ended.stdout


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that is to use the emulated CANN. Raises as `folder` does."""
    built = folder()
    libraries = ":".join(filter(None, [str(built), base.get("LD_LIBRARY_PATH", "")]))
    return {
        **base,
        "LD_LIBRARY_PATH": libraries,
        "ASCEND_HOME_PATH": str(built / "home"),
        "ASCEND_OPP_PATH": str(built / "home/opp"),
        "ACCEL_SYSROOT": str(built / "root"),
        "OMP_NUM_THREADS": base.get("OMP_NUM_THREADS", "1"),
    }
