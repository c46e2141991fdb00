"""How every deployment goes: permits out, outcomes in, one snapshot for whoever decides.

The only owner of health state; one per process, used from one thread. Knows no clock (``now`` is
wall-clock seconds), no randomness of its own, no provider and no error: outcomes come classified.

A permit is asked for with :meth:`HealthTracker.acquire` and given back exactly once, by
:meth:`~HealthTracker.settle` with an outcome or by :meth:`~HealthTracker.release` without one. What comes
in later than that, or from a permit that a newer state has superseded, changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from router.catalog.catalog import Catalog
from router.health.bench import Bench, BenchBook, BenchKey
from router.health.breaker import Breaker
from router.health.incidents import Incident, IncidentLog
from router.health.jitter import Randomness
from router.health.key_ring import NAMELESS, KeyRing
from router.health.outcome import Outcome, OutcomeKind
from router.health.record import DeploymentRecord, bench_keys, label_bench_keys, see, standing
from router.health.settlement import OpenPermit, Permit, Settlement
from router.health.snapshot import (
    DeploymentHealth,
    HealthSnapshot,
    ProviderCondition,
    ProviderStatusLike,
)
from router.health.state import HealthState, SavedDeployment, SavedProvider

__all__ = ["HealthTracker", "Permit"]

_LEARNED_CONTEXT_S = 86_400.0
_FURTHEST_BENCH_S = 31 * 86_400.0
_PRUNE_EVERY_S = 60.0
_UNTOLD = ProviderCondition()


class HealthTracker:
    """Breakers, benches, averages and requests in flight of every deployment of a catalog."""

    def __init__(self, catalog: Catalog, *, rng: Randomness) -> None:
        self._book = BenchBook()
        self._keys = KeyRing()
        self._incidents = IncidentLog()
        self._settlement = Settlement(self._book, self._incidents, rng)
        self._records: dict[str, DeploymentRecord] = {}
        self._provider_breakers: dict[str, Breaker] = {}
        self._open: dict[int, OpenPermit] = {}
        self._issued = 0
        self._epoch = 0
        self._prune_at = 0.0
        self._seen_statuses: dict[str, ProviderStatusLike] = {}
        self.retune(catalog)

    # ------------------------------------------------------------------ configuration

    def retune(self, catalog: Catalog) -> None:
        """Follow a changed catalog; whoever keeps id, provider and upstream model keeps his state."""
        records: dict[str, DeploymentRecord] = {}
        for deployment_id, deployment in catalog.deployments.items():
            provider = catalog.providers[deployment.provider]
            known = self._records.get(deployment_id)
            if known is not None and (
                known.provider.name,
                known.deployment.upstream_model,
            ) == (provider.name, deployment.upstream_model):
                known.deployment, known.provider = deployment, provider
                records[deployment_id] = known
            else:
                records[deployment_id] = DeploymentRecord(deployment, provider)
        self._records = records
        self._provider_breakers = {
            name: self._provider_breakers.get(name) or Breaker() for name in catalog.providers
        }
        self._epoch += 1

    def configure_keys(self, provider: str, labels: Sequence[str]) -> None:
        """Say which keys ``provider`` has, by label (the environment variable's name), never the keys."""
        self._keys.configure(provider, labels)
        self._epoch += 1

    # ------------------------------------------------------------------ permits

    def acquire(
        self, deployment_id: str, now: float, *, prompt_tokens: int = 0, last_resort: bool = False
    ) -> Permit | None:
        """Ask for leave to call a deployment; ``None`` where it is held back or gone.

        ``prompt_tokens`` says which bucket its time to first token belongs to. ``last_resort`` passes an
        open breaker, a probe under way and a busy slot; never a bench that the upstream itself stated.
        """
        record = self._records.get(deployment_id)
        if record is None:
            return None
        provider = record.provider.name
        labels = self._keys.labels(provider) or (NAMELESS,)
        stands = standing(record, labels, self._book, now)
        if not self._may_pass(stands.bench, last_resort) or (stands.probing and not last_resort):
            return None
        usable = stands.open_keys or (stands.probing_keys if last_resort else ())
        if not usable:
            return None
        providers = self._provider_breakers[provider]
        if not last_resort and not (record.breaker.admits(now) and providers.admits(now)):
            return None
        own = record.breaker.admit(now, last_resort=last_resort)
        above = providers.admit(now, last_resort=last_resort)
        if own is None or above is None:  # pragma: no cover - admits() has just said otherwise
            return None
        self._issued += 1
        key_label = self._pick_key(record, usable, now)
        probes = self._take_bench_probes(record, key_label, self._issued, now)
        permit = Permit(
            number=self._issued,
            deployment_id=deployment_id,
            provider=provider,
            key_label=key_label,
            probe=own.probe or above.probe or bool(probes),
            last_resort=own.last_resort or above.last_resort,
            acquired_at=now,
            prompt_tokens=prompt_tokens,
        )
        self._open[permit.number] = OpenPermit(permit, record, providers, own, above, probes)
        self._keys.take(provider, key_label)
        record.in_flight += 1
        record.touch()
        return permit

    def settle(self, permit: Permit, outcome: Outcome, now: float) -> bool:
        """Give a permit back with what came of it; return whether it counted (once, and only once)."""
        entry = self._open.pop(permit.number, None)
        if entry is None:
            return False
        self._free(entry)
        self._settlement.apply(entry, outcome, now)
        return True

    def release(self, permit: Permit) -> bool:
        """Give a permit back without a verdict: the client left, or it was never used."""
        entry = self._open.pop(permit.number, None)
        if entry is None:
            return False
        self._free(entry)
        self._settlement.release(entry)
        return True

    # ------------------------------------------------------------------ observations

    def observe_first_event(self, permit: Permit, ttft_s: float, now: float) -> None:
        """Take in that content began to flow: a probe has then proved its point, long before the end."""
        entry = self._open.get(permit.number)
        if entry is not None:
            self._settlement.first_event(entry, ttft_s, now)
            entry.record.touch()

    def observe_usage(self, deployment_id: str, prompt_characters: int, prompt_tokens: int) -> None:
        """Learn a model's tokens per character from an upstream's own count of a prompt."""
        record = self._records.get(deployment_id)
        if record is not None:
            record.averages.observe_ratio(prompt_characters, prompt_tokens)
            record.touch()

    # ------------------------------------------------------------------ views

    def snapshot(self, now: float, statuses: Mapping[str, ProviderStatusLike]) -> HealthSnapshot:
        """Return every deployment's health; ``statuses`` is what each provider says of itself, by name.

        A provider without a status counts as configured and ready. Views that nothing has changed are
        reused for a quarter of a second.
        """
        if len(self._book) and now >= self._prune_at:
            self._book.prune(now)
            self._prune_at = now + _PRUNE_EVERY_S
        if statuses != self._seen_statuses:
            self._seen_statuses = dict(statuses)
            self._epoch += 1
        epoch = self._epoch + self._book.version
        views: dict[str, DeploymentHealth] = {}
        for deployment_id, record in self._records.items():
            view = record.view
            name = record.provider.name
            above = self._provider_breakers[name]
            # A sum of counters that only grow changes where any of them does.
            seen = epoch + above.version
            if view is None or record.view_epoch != seen or now >= record.view_until:
                view = see(
                    record,
                    self._seen_statuses.get(name, _UNTOLD),
                    self._keys.labels(name),
                    self._keys.known(name),
                    self._book,
                    above,
                    now,
                )
                record.view_epoch = seen
            views[deployment_id] = view
        return HealthSnapshot(taken_at=now, deployments=views)

    def incidents(self) -> tuple[Incident, ...]:
        """Return the last fifty incidents, oldest first."""
        return self._incidents.recent()

    @property
    def in_flight(self) -> int:
        """How many permits are out."""
        return len(self._open)

    # ------------------------------------------------------------------ saving

    def export(self) -> HealthState:
        """Return what should outlive a restart; deadlines are wall-clock times."""
        return HealthState(
            benches=self._book.all(),
            deployments=tuple(
                SavedDeployment(
                    deployment_id=deployment_id,
                    provider=record.provider.name,
                    upstream_model=record.deployment.upstream_model,
                    breaker=record.breaker.export(),
                    averages=record.averages.export(),
                    learned_context_tokens=record.learned_context_tokens,
                    learned_until=record.learned_until,
                )
                for deployment_id, record in self._records.items()
            ),
            providers=tuple(
                SavedProvider(name, saved)
                for name, breaker in self._provider_breakers.items()
                if (saved := breaker.export()) is not None
            ),
        )

    def restore(self, state: HealthState, now: float) -> None:
        """Take up a saved state as far as it still applies; what is over or unknown is dropped."""
        self._book.restore(
            (bench for bench in state.benches if bench.key.provider in self._provider_breakers),
            now,
            _FURTHEST_BENCH_S,
        )
        for saved in state.deployments:
            record = self._records.get(saved.deployment_id)
            if record is None or (record.provider.name, record.deployment.upstream_model) != (
                saved.provider,
                saved.upstream_model,
            ):
                continue
            if saved.breaker is not None:
                record.breaker.restore(saved.breaker, now)
            record.averages.restore(saved.averages, now)
            record.learned_context_tokens = saved.learned_context_tokens
            record.learned_until = min(saved.learned_until, now + _LEARNED_CONTEXT_S)
        for provider in state.providers:
            breaker = self._provider_breakers.get(provider.name)
            if breaker is not None:
                breaker.restore(provider.breaker, now)
        self._epoch += 1

    # ------------------------------------------------------------------ inside

    def _free(self, entry: OpenPermit) -> None:
        entry.record.in_flight -= 1
        entry.record.touch()
        self._keys.give_back(entry.permit.provider, entry.permit.key_label)

    def _pick_key(self, record: DeploymentRecord, usable: Sequence[str], now: float) -> str:
        """Return whose turn it is; a key on probation only after those nothing is held against."""
        in_turn = self._keys.in_turn(record.provider.name, usable)
        if len(in_turn) == 1 or not len(self._book):
            return in_turn[0]
        for label in in_turn:
            if all(self._book.find(key, now) is None for key in label_bench_keys(record, label)):
                return label
        return in_turn[0]

    def _take_bench_probes(
        self, record: DeploymentRecord, key_label: str, number: int, now: float
    ) -> tuple[BenchKey, ...]:
        if not len(self._book):
            return ()
        keys = (*bench_keys(record), *label_bench_keys(record, key_label))
        return tuple(key for key in keys if self._book.take_probe(key, number, now))

    @staticmethod
    def _may_pass(bench: Bench | None, last_resort: bool) -> bool:
        return bench is None or (last_resort and bench.kind is OutcomeKind.SLOT_BUSY)
