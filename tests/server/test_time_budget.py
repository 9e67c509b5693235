from __future__ import annotations

import pytest

from battlesnake_server.live.time_budget import (
    NUM_TRACKED_OVERRUNS,
    OverrunTracker,
    RoundTripEstimate,
    _margin_s,
)


def estimate(seconds: float | None) -> RoundTripEstimate:
    trip = RoundTripEstimate()
    trip.seconds = seconds
    return trip


@pytest.mark.parametrize("timeout", [0.02, 0.1, 0.5, 2.0, 15.0])
@pytest.mark.parametrize("round_trip", [None, 0.0, 0.01, 0.3, 20.0])
def test_thinking_and_travelling_never_exceed_the_timeout(
    timeout: float, round_trip: float | None
) -> None:
    seconds = estimate(round_trip).time_budget_s(timeout)
    assert 0 <= seconds < timeout
    if seconds:
        assert seconds + (round_trip or 0) + _margin_s(timeout) <= timeout + 1e-6


def test_a_near_engine_leaves_most_of_the_time() -> None:
    assert estimate(0.002).time_budget_s(0.5) > 0.44
    assert [_margin_s(timeout) for timeout in (0.1, 0.5, 9.0)] == pytest.approx([0.01, 0.05, 0.05])


def test_a_slow_turn_counts_at_once_and_is_forgotten_slowly() -> None:
    trip = RoundTripEstimate()
    seen = []
    for latency in ("10", "300", "10", "10", *["10"] * 40):
        trip.record_own_time(0.0)
        trip.observe(latency)
        seen.append(trip.seconds)
    assert seen[1] == pytest.approx(0.3)
    assert seen[2] == pytest.approx(0.01 + 0.8 * 0.29)
    assert seen[-1] == pytest.approx(0.01, abs=0.001)


@pytest.mark.parametrize("latency", ["", "0", "-5", "soon", "nan", "inf", "1e999", "12ms", "\x00"])
def test_odd_latencies_are_passed_over(latency: str) -> None:
    trip = RoundTripEstimate()
    trip.record_own_time(0.1)
    trip.observe(latency)
    assert trip.seconds is None


def test_a_latency_without_an_answer_of_ours_says_nothing() -> None:
    trip = RoundTripEstimate()
    trip.observe("400")
    assert trip.seconds is None
    trip.record_own_time(0.0)
    trip.observe("1")
    assert trip.seconds == 0.001


def test_the_worst_overrun_of_late_is_left_to_the_next_thought() -> None:
    overruns = OverrunTracker()
    overruns.observe(5.0)
    assert overruns.reserve_s(0.4) == 0, "the first says nothing"
    for late in (0.02, 0.07, 0.001, -0.3):
        overruns.observe(late)
    assert overruns.reserve_s(0.4) == 0.07
    assert overruns.reserve_s(0.1) == pytest.approx(0.03), "but never most of a thought"
    for _ in range(NUM_TRACKED_OVERRUNS):
        overruns.observe(0.001)
    assert overruns.reserve_s(0.4) == 0.001
    for _ in range(NUM_TRACKED_OVERRUNS):
        overruns.observe(0.0)
    assert overruns.reserve_s(0.4) == 0, "one that ends on time says so"
