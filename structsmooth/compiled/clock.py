"""A clock that stands still while loops are compiled: what a run takes shall not depend on who was the first to run."""

import time

_compiling = 0.0


def seconds() -> float:
    """Seconds since some moment, without those in which loops were compiled."""
    return time.perf_counter() - _compiling


def leave_out(duration: float) -> None:
    """Count some seconds as compilation."""
    global _compiling
    _compiling += duration
