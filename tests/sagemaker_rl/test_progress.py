"""Progress lines within a long step."""

import time

import pytest

from sagemaker_rl.runs.progress import Progress


def test_a_silent_step_shows_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    with progress.lines_every(0.2):
        progress.begin_step("run 3%, iteration 7")
        progress.set_detail("played 20 steps")
        time.sleep(1.0)
        longest_pause = 0.0  # longer than the interval only if the machine stalls
        for number in range(25):  # Another line was shown meanwhile.
            shown = time.monotonic()
            progress.mark_shown()
            time.sleep(0.02)
            if number == 0:
                capsys.readouterr()
            longest_pause = max(longest_pause, time.monotonic() - shown)
        assert capsys.readouterr().out == "" or longest_pause > 0.15
        time.sleep(1.0)
        lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("run 3%, iteration 7, ") for line in lines)
    assert all(line.endswith(" s: played 20 steps") for line in lines)
    time.sleep(0.5)
    assert capsys.readouterr().out == ""
