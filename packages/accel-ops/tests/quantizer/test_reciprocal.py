# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The division for devices whose own is not exact: as the host's, whatever a device's first guess is off by."""

import subprocess
from pathlib import Path

import pytest

from accel_core.native import compiler
from accel_sim import shared

PROGRAM = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#define ACCEL_DEVICE inline
#include "accel/reciprocal.h"

static uint32_t bits(float value) { uint32_t made; std::memcpy(&made, &value, 4); return made; }
static float number(uint32_t bits) { float made; std::memcpy(&made, &bits, 4); return made; }
static bool wrong(int exponent, uint32_t of, int off) {
  const accel::Parts parts = accel::parts_of(of);
  const float guess = 0x1p47f / static_cast<float>(parts.significand) + static_cast<float>(off);
  return accel::power_over_bits(exponent, parts, guess) != bits(static_cast<float>(1 << exponent) / number(of));
}

int main(int, char** arguments) {
  const uint32_t stride = std::atoi(arguments[1]);
  long cases = 0, errors = 0;
  for (uint32_t significand = 0; significand < 1u << 23; significand += stride)
    for (int off = -4; off <= 4; ++off, ++cases) errors += wrong(0, significand | 0x3f800000u, off);
  std::mt19937 draw(1);
  const int exponents[] = {0, 3, 4, 7, 8};
  for (uint32_t i = 0; i < 30000000u / stride; ++i, ++cases) {
    uint32_t of = draw() % 0x7f800000u;
    if (i % 3 == 1) of = 0x7e000000u + draw() % 0x1800000u; // results near zero and denormal
    if (i % 3 == 2) of = draw() % 0x1800000u; // numbers near zero and denormal
    if (of) errors += wrong(exponents[draw() % 5], of, static_cast<int>(draw() % 9) - 4);
  }
  std::printf("%ld of %ld\\n", errors, cases);
}
"""


def errors(folder: Path, stride: int, planted: tuple[str, str] = ("", "")) -> tuple[int, int]:
    """Return how many quotients are wrong, and how many there were."""
    header = (shared.folder("csrc") / "include/accel/reciprocal.h").read_text("utf-8")
    assert planted[0] in header
    (folder / "accel").mkdir()
    (folder / "accel/reciprocal.h").write_text(header.replace(*planted) if planted[0] else header, "utf-8")
    (folder / "program.cpp").write_text(PROGRAM, "utf-8")
    command = [*compiler.find(), "-O2", "-std=c++17", f"-I{folder}", str(folder / "program.cpp")]
    subprocess.run([*command, "-o", str(folder / "program")], check=True, capture_output=True)
    done = subprocess.run([str(folder / "program"), str(stride)], check=True, capture_output=True, text=True)
    wrong, cases = done.stdout.split(" of ")
    return int(wrong), int(cases)


@pytest.mark.parametrize(
    ("stride", "least"), [(97, 1_000_000), pytest.param(1, 9 * 2**23, marks=pytest.mark.slow)]
)
def test_quotients_are_those_of_the_host(tmp_path: Path, stride: int, least: int) -> None:
    """A million of them, or those of every significand."""
    wrong, cases = errors(tmp_path, stride)
    assert wrong == 0
    assert cases > least


@pytest.mark.parametrize(
    "planted",
    [("2 * rest > divisor", "0"), ("for (; rest < 0; rest += divisor) --quotient;\n", ""),
     ("exponent + 253", "exponent + 254"), ("lost >> (shift - 1)", "0"), ("--parts.exponent", "0")],
    ids=["truncation", "a guess too high", "a power too high", "truncation near zero", "values near zero"],
)  # fmt: skip
def test_planted_fault_is_noticed(planted: tuple[str, str], tmp_path: Path) -> None:
    assert errors(tmp_path, 97, planted)[0]
