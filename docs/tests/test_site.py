# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The site: every page is in its navigation, and Sphinx builds it without a warning."""

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1]
PAGES = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}


@pytest.mark.more
def test_the_site_has_every_page(site: Path) -> None:
    assert {page for page in PAGES if not (site / f"{page}.html").is_file()} == set()
