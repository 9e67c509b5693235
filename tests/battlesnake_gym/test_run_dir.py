"""Status files of runs, in the current format and in older ones."""

import json
import shutil
from pathlib import Path

from battlesnake_gym.common.run_dir import DONE, RUN_FILE, RunStatus

OLD_FORMAT = Path(__file__).parents[1] / "data" / "formats" / "run_1"


def test_former_field_names_are_read(tmp_path: Path) -> None:
    shutil.copy(OLD_FORMAT / RUN_FILE, tmp_path)
    status = RunStatus.load(tmp_path)
    assert status is not None
    assert (status.state, status.reason) == (DONE, "")
    assert status.ended_at is not None
    assert 0 < status.started_at < status.ended_at
    assert status.stop_conditions == {
        "num_iters": 2,
        "minutes": None,
        "cpu_minutes": None,
        "env_steps": None,
    }
    status.save(tmp_path)
    saved = json.loads((tmp_path / RUN_FILE).read_text())
    assert {"started_at", "ended_at", "reason", "stop_conditions"} <= set(saved)
    assert not {"began", "ended", "why", "plan"} & set(saved)
    assert RunStatus.load(tmp_path) == status
