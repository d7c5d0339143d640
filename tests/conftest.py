"""What several test files share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets, which the repository does not hold; without it, such tests skip."""
    named = os.environ.get("EVENHAND_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"real data not found in {folder}; set EVENHAND_SHARED_DATA to its folder")
    return folder
