"""What several modules here start from."""

import pytest

from few_cells import few_cells


@pytest.fixture
def small(tmp_path):
    return few_cells(tmp_path)
