from pathlib import Path

import pytest

from tests.e2e.sitting import PROFILE, SLA, Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    laid = Table(tmp_path)
    laid.sheet("profile.yaml", PROFILE)
    laid.sheet("sla.yaml", SLA)
    return laid
