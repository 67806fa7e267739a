"""Durations as people write them."""

import pytest
import typer

from muster.durations import BadDuration, duration, read_duration, read_duration_or_ms, written


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        ("2d", 172_800_000),
        ("2w", 1_209_600_000),
        ("1m500ms", 60_500),
        ("0s", 0),
        (" 10 S ", 10_000),
        ("0.1s", 100),
    ],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5x", "5 minutes", "1,5h", "5s6", ".5s", "٣s", "s5"])
def test_invalid_durations_are_named(text: str) -> None:
    with pytest.raises(BadDuration, match="30s, 5m"):
        read_duration(text)


def test_an_option_takes_0_without_a_unit() -> None:
    """All units have the same 0."""
    assert duration("0") == duration("0s") == 0
    with pytest.raises(typer.BadParameter, match="30s, 5m"):
        duration("5")


def test_settings_ending_in_ms_accept_both() -> None:
    assert [read_duration_or_ms(text) for text in ("60000", " 0 ", "1m", "250ms")] == [60_000, 0, 60_000, 250]
    for text in ("-1", "1.5", "1e3", "", "1x"):
        with pytest.raises(BadDuration):
            read_duration_or_ms(text)


@pytest.mark.parametrize("text", ["7d", "36h", "90m", "45s", "1500ms", "0ms"])
def test_a_duration_is_written_as_it_is_read(text: str) -> None:
    assert written(read_duration(text)) == text
