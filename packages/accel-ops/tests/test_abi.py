# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A library with another C interface is refused, the difference is named, and the op still works."""

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accel_core.errors import LibraryMismatch
from accel_ops import abi, binding, kernels, library
from shared.children import run


def fields(structure: str, *names: str, between: str = " ") -> str:
    """The rows of the fields in the description's table."""
    return f",{between}".join(f"FIELD({structure}, {name})" for name in names)


HEADER, DESCRIPTION = "accel_ops.h", "abi.cpp"
_VERSION = f"ACCEL_ABI_VERSION = {binding.ABI_VERSION}"
_LISTS, _OPTIONS = "accel_tensor_lists", "accel_adam_options"
#: Replacements (file, old text, new text) by name, and a part of the error that they cause.
CHANGES: dict[str, tuple[list[tuple[str, str, str]], str]] = {
    "one field longer, in the padding": (
        [
            (HEADER, "int32_t threads;", "int32_t threads, extra;"),
            (DESCRIPTION, fields(_LISTS, "threads"), fields(_LISTS, "threads", "extra")),
        ],
        "accel_tensor_lists.extra: int32 at 76",
    ),
    "one field longer": (
        [
            (HEADER, "int32_t decoupled;", "int32_t decoupled, extra, another;"),
            (HEADER, "sizeof(accel_adam_options) == 64", "sizeof(accel_adam_options) == 72"),
            (HEADER, "sizeof(accel_adam_arguments) == 120", "sizeof(accel_adam_arguments) == 128"),
            (DESCRIPTION, fields(_OPTIONS, "decoupled"), fields(_OPTIONS, "decoupled", "extra", "another")),
        ],
        "struct accel_adam_options: 72 bytes",
    ),
    "swapped fields": (
        [
            (HEADER, "double lr, beta1,", "double beta1, lr,"),
            (DESCRIPTION, fields(_OPTIONS, "lr", "beta1", between=" " * 11), fields(_OPTIONS, "beta1", "lr")),
        ],
        "accel_adam_options.lr: double at 8; field accel_adam_options.beta1: double at 0",
    ),
    "a field of another type": ([(HEADER, "int64_t step;", "double step;")], "accel_adam_options.step: double at 48"),
    "an argument less": (
        [(HEADER, "double grad_factor,\n    double at_zero);", "double grad_factor);")],
        "function accel_lion: int32(accel_tensor_lists*, double, double, double, double, double)",
    ),
    "swapped element types": (
        [(HEADER, "ACCEL_BF16 = 1, ACCEL_F16 = 2", "ACCEL_BF16 = 2, ACCEL_F16 = 1")],
        "constant ACCEL_BF16: 2; constant ACCEL_F16: 1",
    ),
    "a newer version": ([(HEADER, _VERSION, "ACCEL_ABI_VERSION = 99")], "ABI version 99"),
    "an older version": ([(HEADER, _VERSION, "ACCEL_ABI_VERSION = 1")], "ABI version 1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Object files of all units but the description. No test calls their functions."""
    source, folder = library.source(), tmp_path_factory.mktemp("objects")
    made = []
    for unit in source.units:
        if unit.name != DESCRIPTION:
            made.append(folder / f"{unit.stem}.o")
            headers = [f"-I{folder}" for folder in source.folders]
            flags = ("-std=c++17", "-fPIC", "-O0", "-ffp-contract=off", *headers)
            run("c++", *flags, "-c", unit, "-o", made[-1], check=True)
    return made


@pytest.fixture
def link(objects: list[Path], tmp_path: Path) -> Callable[..., Path]:
    """Builds a library whose header and description have texts replaced."""

    def variant(replacements: list[tuple[str, str, str]], *flags: str) -> Path:
        csrc, target = tmp_path / "csrc", tmp_path / "variant.so"
        shutil.copytree(library.source().folders[0], csrc)
        for name, old, new in replacements:
            text = (csrc / name).read_text(encoding="utf-8")
            assert old in text, old
            (csrc / name).write_text(text.replace(old, new), encoding="utf-8")
        files = csrc / DESCRIPTION, *objects
        run("c++", "-std=c++17", "-fPIC", "-shared", *flags, "-o", target, *files, check=True)
        return target

    return variant


def assert_refused(path: Path, found: str) -> None:
    with pytest.raises(LibraryMismatch) as raised:
        abi.check(ctypes.CDLL(str(path)))
    assert found in raised.value.found
    assert str(raised.value).startswith("[ACC-406]")
    assert path.name in raised.value.what


def assert_right_numbers() -> None:
    tensors = [torch.ones(5) for _ in range(4)]
    kernels.adam(*([tensor] for tensor in tensors), step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=0.0)
    assert torch.allclose(tensors[0], torch.full((5,), 1 - 0.1 * 10 / 10))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_interface_is_refused_and_the_difference_named(
    change: str, link: Callable[..., Path]
) -> None:
    replacements, found = CHANGES[change]
    assert_refused(link(replacements), found)


def test_the_unchanged_variant_is_accepted(link: Callable[..., Path]) -> None:
    abi.check(ctypes.CDLL(str(link([]))))


def test_everything_that_the_header_declares_is_described() -> None:
    csrc = library.source().folders[0]
    header = "".join((csrc / name).read_text(encoding="utf-8") for name in (HEADER, "accel_io.h"))
    functions = re.findall(r"^ACCEL_API [\w *]+?(accel_\w+)\(", header, re.MULTILINE)
    constants = re.findall(r"\b(ACCEL_\w+) = \d", header)
    structures = re.findall(r"^} (accel_\w+);", header, re.MULTILINE)
    assert functions == list(binding.PROTOTYPES)
    assert constants == list(binding.CONSTANTS)
    assert structures == list(binding.STRUCTURES)


def test_a_library_without_one_of_the_functions_is_refused(link: Callable[..., Path], tmp_path: Path) -> None:
    hidden = tmp_path / "hidden.txt"
    hidden.write_text("{ local: accel_lion; };")
    assert_refused(link([], f"-Wl,--version-script={hidden}"), "without the functions accel_lion")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "without the function accel_abi_version"),
        ('extern "C" int accel_abi_version() { return 1; }', "ABI version 1"),
        (f'extern "C" int accel_abi_version() {{ return {binding.ABI_VERSION}; }}', "without the functions accel_adam"),
    ],
    ids=["none of ours", "before there was a description", "of our version, empty"],
)  # fmt: skip
def test_a_library_without_our_functions_is_refused(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "other.cpp").write_text(text)
    run("c++", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.cpp", check=True)
    assert_refused(tmp_path / "other.so", found)


def test_a_mismatched_library_of_the_wheel_is_replaced_by_a_build_that_says_why(
    cache: Path, link: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "PREBUILT", link(CHANGES["swapped fields"][0]))
    reason = library.load().reason
    assert reason.startswith("compiled on this machine: accel_ops-")
    assert "variant.so cannot be used: its C interface" in reason
    assert "accel_adam_options.lr: double at 8" in reason
    assert_right_numbers()


def test_a_mismatched_library_in_the_cache_is_built_again(
    cache: Path, link: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = library.native.build_library(library.source())
    wrong = link(CHANGES["one field longer"][0])
    digest = hashlib.sha256(wrong.read_bytes()).hexdigest()[:32]
    planted = right.with_name(f"{right.stem.rpartition('-')[0]}-{digest}.so")
    right.unlink()
    shutil.copy(wrong, planted)
    reason = library.load().reason
    assert reason.startswith("compiled on this machine again: ")
    assert "accel_adam_options: 72 bytes" in reason
    assert not planted.exists()
    assert_right_numbers()


def test_without_a_compiler_a_mismatched_library_leaves_plain_torch(
    cache: Path, link: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "PREBUILT", link(CHANGES["swapped element types"][0]))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.warns(RuntimeWarning, match="constant ACCEL_BF16: 2"):
        assert library.load().functions is None
    assert_right_numbers()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (HEADER, "int32_t threads;", "int32_t threads, extra;"),
        (HEADER, "double lr, beta1,", "double beta1, lr,"),
        (HEADER, "int64_t size;", "int64_t size, another;"),
        (HEADER, "typedef struct {", "#pragma pack(1)\ntypedef struct {"),
    ],
    ids=["field in the padding", "swapped fields", "field in the middle", "packed"],
)
def test_a_struct_that_its_description_does_not_follow_does_not_compile(
    name: str, old: str, new: str, link: Callable[..., Path]
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as raised:
        link([(name, old, new)])
    assert "static assertion failed" in raised.value.stderr


def test_packed_arguments_have_the_bytes_of_the_structure() -> None:
    options = binding.AdamOptions(0.1, 0.9, 0.99, 1e-8, 0.2, 0.5, 3, 1, 0)
    made = binding.AdamArguments(11, 12, 13, 14, 5, 0, 1, 2, 7, options)
    packed = binding.ADAM_ARGUMENTS.pack(
        11, 12, 13, 14, 5, 0, 1, 2, 7, 0.1, 0.9, 0.99, 1e-8, 0.2, 0.5, 3, 1, 0
    )
    assert packed == bytes(made)


def test_a_structure_with_padding_cannot_be_packed() -> None:
    with pytest.raises(TypeError, match="padding"):
        binding.packer(binding.TensorLists)


def test_a_short_buffer_is_not_overrun_and_the_whole_length_is_returned(link: Callable[..., Path]) -> None:
    opened = ctypes.CDLL(str(link([])))
    buffer = ctypes.create_string_buffer(b"\x7f" * 40, 40)
    assert opened.accel_abi_description(buffer, 20) == len(abi.expected())
    assert buffer.value.decode() == abi.expected()[:19]
    assert buffer.raw[20:] == b"\x7f" * 20
