# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The kernels in the wheel: their source, and images where NVRTC of the right release is; and with real compilers."""

import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import accel_sim
from accel_core import processes
from accel_core.vendor import distribution_version
from accel_cuda.kernels import compiled_here, rtc
from accel_ops.routes import ARGUMENTS
from accel_sim.driver import trials
from shared import kernel_wheels

TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75")
#: Bytes of the types of PTX.
SIZES = {".u64": 8, ".u32": 4, ".f32": 4, ".b64": 8, ".b32": 4}


def size(given: str) -> int:
    """Return the bytes of an argument in PTX, of a number or of a structure."""
    structure = re.search(r"\.b8 \w+\[(\d+)\]", given)
    return int(structure[1]) if structure else SIZES[re.findall(r"\.param (\.\w+)", given)[0]]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package next to the headers, so that the build writes nothing here."""
    return kernel_wheels.copied(Path(__file__).parents[1], tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheel")


@pytest.fixture(scope="module")
def wheel(checkout: Path, wheels: Path) -> dict[str, bytes]:
    """The files that a wheel has for kernels: the images take half a minute to make."""
    return kernel_wheels.built(checkout, wheels)


@pytest.fixture(scope="module")
def site(wheel: dict[str, bytes], wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked as pip does it."""
    folder = tmp_path_factory.mktemp("site")
    (file,) = wheels.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


needs_nvrtc = pytest.mark.skipif(
    distribution_version("nvidia-cuda-nvrtc-cu12") != "12.9.86",
    reason="not run: nvidia-cuda-nvrtc-cu12==12.9.86 is not installed",
)


_QUANTIZES = """
import sys
import torch
from accel_sim.driver import emulated
driver = emulated.load(emulated.LIBCUDA)  # built by another process, which had a compiler
started = []
starts = {"subprocess.Popen", "os.posix_spawn", "os.fork"}
sys.addaudithook(lambda event, _: started.append(event) if event in starts else None)
sys.path.insert(0, sys.argv[1])
from accel_ops import routes
from accel_ops.quantizers.quantizer import QuantizerFunctions
from accel_cuda import __file__ as installed
from accel_cuda.kernels import images, loading
from accel_cuda.op_builder.ours import QuantizerBuilder
assert installed.startswith(sys.argv[1]), installed
print(*(images.image_for(divmod(version, 10))[0] for version in (75, 80, 86, 90, 100, 103, 120, 130)))
values = torch.randn(8, 64)
for capability in (90, 80, 120):
    driver.accel_driver_set(2, 12080, capability)
    torch.cuda.get_device_capability = lambda device: divmod(capability, 10)
    loading._architecture.cache_clear()
    routes.tried.cache_clear()
    builder = QuantizerBuilder()
    op, before = builder.load(), driver.accel_driver_launches()
    for bits in (8, 4):
        found = op.quantize(values.to("cuda"), 8, bits, 0)
        wanted = QuantizerFunctions().quantize(values, 8, bits, 0)
        assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, wanted, strict=True))
    assert not started, started
    print(builder.reason, driver.accel_driver_launches() - before)
"""


@needs_nvrtc
@pytest.mark.skipif("ACCEL_SIM" in os.environ, reason="not run: in the simulated process")
@pytest.mark.slow
def test_installed_wheel_quantizes_without_a_compiler(site):
    environment = accel_sim.environment("cuda", base=dict(os.environ))
    # The emulated driver and the simulated device, into the cache: that of the user, which other tests fill, too.
    load = "from accel_sim.driver import emulated; emulated.load(emulated.LIBCUDA)"
    warm = f"import torch; {load}; torch.ones(1).to('cuda')"
    subprocess.run([sys.executable, "-c", warm], env=environment, check=True, capture_output=True)
    left = {name: value for name, value in environment.items() if name not in ("CXX", "CC", "CUDA_HOME")}
    done = processes.run([sys.executable, "-c", _QUANTIZES, str(site)], env=left | {"PATH": ""})
    assert not done.returncode, done.stderr
    of_each, *used = done.stdout.splitlines()
    assert of_each == "sm_75 sm_80 sm_80 sm_90 sm_100 sm_100 sm_120 compute_75"
    assert used == ["image sm_90 2", "image sm_80 2", "image sm_120 2"]


@pytest.mark.slow
@needs_nvrtc
def test_images_are_reproducible(wheel, checkout, tmp_path):
    assert wheel == kernel_wheels.built(checkout, tmp_path / "again")


@needs_nvrtc
@pytest.mark.slow
def test_images_have_the_launcher_s_kernels(wheel):
    table = json.loads(wheel["images.json"])["images"]
    assert tuple(table) == TARGETS
    for name, entry in table.items():
        content = wheel[entry["file"]]
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]
        assert all(kernel.encode() in content for kernel in ARGUMENTS)
        assert name.startswith("compute") or (content[:4], content[18]) == (b"\x7fELF", 190)
    ptx = wheel["compute_75.ptx"].decode()
    entries = re.findall(r"\.entry (\w+)\(([^)]*)\)", ptx)
    sizes = {name: [size(given) for given in arguments.split(",")] for name, arguments in entries}
    assert sizes == {name: [ctypes.sizeof(kind) for kind in kinds] for name, kinds in ARGUMENTS.items()}
    assert not re.search(r"\bfma\.|\.ftz|\.approx|div\.full", ptx)
    # Nothing is copied to a thread's own memory: not the table of tensors either.
    assert ".local" not in ptx


def test_isolated_build_brings_nvrtc_where_images_are_demanded(checkout, monkeypatch):
    from hatchling import build as backend

    monkeypatch.chdir(checkout)
    monkeypatch.delenv("ACCEL_CUDA_IMAGES", raising=False)
    assert not any("nvrtc" in each for each in backend.get_requires_for_build_wheel())
    monkeypatch.setenv("ACCEL_CUDA_IMAGES", "1")
    assert "nvidia-cuda-nvrtc-cu12==12.9.86" in backend.get_requires_for_build_wheel()


def test_build_fails_without_the_images_that_are_demanded(checkout, tmp_path):
    other = kernel_wheels.copied(checkout, tmp_path / "other")
    settings = other / "pyproject.toml"
    settings.write_text(settings.read_text().replace('nvrtc = "12.9.86"', 'nvrtc = "12.9.0"'))
    done = kernel_wheels.build(other, tmp_path / "out", ACCEL_CUDA_IMAGES="1")
    assert done.returncode
    assert "demands images" in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif("ACCEL_SIM" in os.environ, reason="not run: in the simulated process")
def test_launcher_s_tests_are_clean_under_the_sanitizers():
    environment = trials.sanitized_environment()
    if environment is None:
        pytest.skip("not run: the compiler has no sanitizers")
    unset = ("DS_ACCELERATOR", "ACCEL_SKIP", "ACCEL_STRICT", "PYTEST_XDIST_WORKER")
    base = {name: value for name, value in environment.items() if name not in unset}
    base["ACCEL_TEST_FLAGS"] = " ".join(trials.SANITIZED)
    tests = Path(__file__).with_name("device") / "test_kernels.py"
    command = [sys.executable, *["-m", "pytest", "-q", "-s", "-p", "no:xdist"], str(tests)]
    done = processes.run(command, 1500, env=accel_sim.environment("cuda", base=base))
    assert not done.returncode, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


#: Debian's: `apt install libamdhip64-5`.
LIBRARY = "libamdhip64.so.5"


def installed() -> bool:
    try:
        return hasattr(ctypes.CDLL(LIBRARY), "hiprtcCreateProgram")
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason=f"not run: no {LIBRARY}")
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_hiprtc_compiles_all_kernels(target):
    source = rtc.flattened(compiled_here.ENTRY, compiled_here._HEADERS)
    image = rtc.compiled(rtc.HIPRTC, Path(LIBRARY), source, target)
    assert (image[:4], image[18]) == (b"\x7fELF", 224)
    assert all(f"{kernel}.kd".encode() in image for kernel in ARGUMENTS)
