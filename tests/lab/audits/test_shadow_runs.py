"""Shadow runs in processes of their own give what they give in one."""

import numpy as np
import pytest
from rich.console import Console

from dpose.runs.config import RunConfig
from dpose_lab.audits.shadow_runs import ShadowJob, run_jobs


@pytest.mark.slow
def test_processes_change_nothing(tmp_path):
    plan = {"method": "non-private", "steps": 1, "expected_batch_size": 4}
    config = RunConfig.from_dict(
        {
            "data": {"private": "synthetic:ward", "limit": 4, "validation_data": "none"},
            "model": {"preset": "nano"},
            "plan": plan,
            "seed": 3,
        }
    )

    def jobs(place):
        rng = np.random.default_rng(0)
        return [
            ShadowJob(config.to_dict(), tuple((rng.random(4) < 0.5).tolist()), str(tmp_path / place / str(k)))
            for k in range(2)
        ]

    alone = run_jobs(jobs("one"), 1, Console(quiet=True), "")
    assert alone.shape == (2, 4)
    assert run_jobs(jobs("two"), 2, Console(quiet=True), "") == pytest.approx(alone, abs=1e-3)
