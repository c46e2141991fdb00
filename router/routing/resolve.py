"""A model's public name to the entrypoint that stands behind it.

Knows the catalog only: whether anybody can serve now is decided later.
"""

from __future__ import annotations

from difflib import get_close_matches

from router.catalog.catalog import Catalog, Entrypoint, Weights
from router.errors import UnknownModel

__all__ = ["PINNED_WEIGHTS", "resolve"]

# One candidate has nobody to compete with: the weights only make its terms readable.
PINNED_WEIGHTS = Weights(health=1.0, task_fit=1.0, context_slack=1.0, cost=1.0, expected_time=1.0, load=1.0)

_SUGGESTIONS = 3


def resolve(model: str, catalog: Catalog) -> Entrypoint:
    """Return the entrypoint called ``model``, or one that pins the candidate of that id.

    An entrypoint comes before a candidate of the same name (the catalog refuses such a clash). Case and
    surrounding blanks are forgiven where that leaves exactly one name.

    Raises
    ------
    UnknownModel
        Nothing has that name; the message lists close ones.

    """
    found = _exact(model, catalog)
    if found is not None:
        return found
    folded = model.strip().casefold()
    names = [*catalog.entrypoints, *catalog.deployments]
    alike = [name for name in names if name.casefold() == folded]
    if len(alike) == 1:
        found = _exact(alike[0], catalog)
        if found is not None:
            return found
    raise UnknownModel(_unknown_text(model, folded, names), param="model")


def _exact(model: str, catalog: Catalog) -> Entrypoint | None:
    entrypoint = catalog.entrypoints.get(model)
    if entrypoint is not None:
        return entrypoint
    deployment = catalog.deployments.get(model)
    if deployment is None:
        return None
    return Entrypoint(
        name=deployment.id,
        description=f"{deployment.upstream_model} at {deployment.provider}, and nobody else",
        candidates=(deployment.id,),
        weights=PINNED_WEIGHTS,
    )


def _unknown_text(model: str, folded: str, names: list[str]) -> str:
    by_fold = {name.casefold(): name for name in names}
    close = [by_fold[hit] for hit in get_close_matches(folded[:200], by_fold, n=_SUGGESTIONS, cutoff=0.5)]
    shown = model if len(model) <= 80 else model[:77] + "..."  # noqa: PLR2004 - a line of a message
    hint = f"did you mean {' or '.join(close)}?" if close else "GET /v1/models lists every name."
    return f"no entrypoint and no candidate is called {shown!r}: {hint}"
