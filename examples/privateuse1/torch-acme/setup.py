# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    ext_modules=[
        CppExtension(
            "torch_acme._C",
            sorted(map(str, Path("csrc").glob("*.cpp"))),
            extra_compile_args=["-O1", "-g0"],  # the time goes into reading headers
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
