"""What happened to the candidates lately that a person should know: the last few, as values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["Incident", "IncidentLog"]

_KEPT = 50


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that happened: ``what`` to whom, ``why``, and ``until`` when (wall-clock seconds)."""

    at: float
    deployment_id: str
    provider: str
    what: str
    why: str
    until: float | None = None


class IncidentLog:
    """The last fifty incidents, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[Incident] = deque(maxlen=_KEPT)

    def note(self, incident: Incident) -> None:
        """Take one in; one that repeats the last of the same deployment only moves its times."""
        if self._kept:
            last = self._kept[-1]
            if (last.deployment_id, last.what, last.why) == (
                incident.deployment_id,
                incident.what,
                incident.why,
            ):
                self._kept.pop()
        self._kept.append(incident)

    def recent(self) -> tuple[Incident, ...]:
        """Return them, oldest first."""
        return tuple(self._kept)
