# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Puts the kernels into the wheel: their source in one file, and images for each architecture made of it by NVRTC.

Images need NVRTC of the release that pyproject.toml names: no GPU, no nvcc. It is a download of 90 MB, so an isolated
build brings it only where ACCEL_CUDA_IMAGES=1 demands images; one without isolation takes it if it is installed.
Without it the wheel has the source alone, of which torch's NVRTC makes an image when the kernels are first loaded.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DISTRIBUTION = "nvidia-cuda-nvrtc-cu12"
FOLDER = "accel_cuda/kernels/images"
#: 1: images have to be made, as for a release.
DEMAND = "ACCEL_CUDA_IMAGES"


class ImagesHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls before each build."""

    def dependencies(self) -> list[str]:
        """Return what an isolated build installs for this hook."""
        return [f"{DISTRIBUTION}=={self.config['nvrtc']}"] if _demanded() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add headers to the sdist, source and images to the wheel; an editable install has the checkout's source."""
        root = Path(self.root)
        headers = root / "include"
        if not headers.is_dir():
            headers = root.parents[1] / "shared/csrc/include"
        if self.target_name == "sdist":
            build_data["force_include"][str(headers)] = "include"
        elif version != "editable":
            made = root / "build" / "images"
            made.mkdir(parents=True, exist_ok=True)
            for path in self._images(headers, made):
                build_data["force_include"][str(path)] = f"{FOLDER}/{path.name}"

    def _images(self, headers: Path, folder: Path) -> list[Path]:
        rtc = _module(Path(self.root) / "src/accel_cuda/kernels/rtc.py")
        source = folder / "accel.cu"
        source.write_text(rtc.flattened("accel/kernels.h", headers), encoding="utf-8")
        library = self._library()
        if library is None:
            return [source]
        made, table = [source], {}
        for target in self.config["targets"]:
            content = rtc.compiled(rtc.NVRTC, library, source.read_text("utf-8"), target)
            path = folder / f"{target}.{'cubin' if target.startswith('sm_') else 'ptx'}"
            path.write_bytes(content)
            table[target] = {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}
            made.append(path)
        listed = folder / "images.json"
        facts = {"nvrtc": self.config["nvrtc"], "options": list(rtc.NVRTC.options), "images": table}
        listed.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        return [*made, listed]

    def _library(self) -> Path | None:
        """Return NVRTC of the right release; None, with a warning, where there is none."""
        wanted = self.config["nvrtc"]
        try:
            found = importlib.metadata.version(DISTRIBUTION)
            spec = importlib.util.find_spec("nvidia.cuda_nvrtc")
        except (importlib.metadata.PackageNotFoundError, ModuleNotFoundError):
            found, spec = "none", None
        if found != wanted or spec is None or not spec.submodule_search_locations:
            lack = f"{DISTRIBUTION} {wanted} is not here (found: {found})"
            if _demanded():
                raise RuntimeError(f"accel-cuda: {DEMAND}=1 demands images of kernels, and {lack}")
            self.app.display_warning(f"accel-cuda: the wheel has no images of kernels, because {lack}")
            return None
        return Path(next(iter(spec.submodule_search_locations)), "lib", "libnvrtc.so.12")


def _demanded() -> bool:
    return os.environ.get(DEMAND) == "1"


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("accel_cuda_rtc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
