"""The counters of sequences, summed."""

import copy
import dataclasses


@dataclasses.dataclass
class TerraceStats:
    """Sums over sequences (rows), those that are closed included.

    Bytes are those that crossed the link between host and device. attended is the mean number of
    entries that a token of decoding attended to, a KV head and layer; tokens is the longest row.
    cache_tokens is the capacity of a row's cache, 0 if it has no cache: `cache.tokens` "auto" gives
    a cache only to selections of a block and more.
    attention_mass is the mean share of full attention's softmax weight that steps attended to, from
    0 to 1: sinks, window and selected rows, but not estimates that stand for several tokens. The
    mean is over mass_samples samples, each of one KV head in one layer, taken every
    `stats.mass_every` steps of a row. attention_mass is None without samples: if that setting is 0,
    or with a retention policy that drops tokens.
    """

    rows: int = 0
    tokens: int = 0
    budget_tokens: int = 0
    cache_tokens: int = 0
    attended: float = 0.0
    rows_hit: int = 0
    rows_missed: int = 0
    bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    waited_seconds: float = 0.0
    attention_mass: float | None = None
    mass_samples: int = 0

    @property
    def hit_rate(self) -> float | None:
        """Selected rows that were in device memory, of all that were looked up.

        None if no row was looked up, or if there is no cache.
        """
        looked_up = self.rows_hit + self.rows_missed
        return self.rows_hit / looked_up if looked_up and self.cache_tokens else None

    @classmethod
    def of(cls, alive: list[dict], closed: dict) -> "TerraceStats":
        """Sums counters of sequences (docs/embedding-c.md has their fields).

        closed: those of sequences that are closed, as add_counters() summed them.
        """
        total = copy.deepcopy(closed)
        for one in alive:
            add_counters(total, one)
        if not total:
            return cls()
        lists, samples = total["lists"], total["mass_samples"]
        return cls(rows=len(alive), tokens=total["length"],
                   budget_tokens=total["budget_tokens"],
                   cache_tokens=total["cache"]["capacity_tokens"],
                   attended=total["attended"] / lists if lists else 0.0,
                   rows_hit=total["cache"]["rows_hit"], rows_missed=total["cache"]["rows_missed"],
                   bytes=total["bytes"], waited_seconds=sum(total["waits"].values()),
                   attention_mass=total["attention_mass"] / samples if samples else None,
                   mass_samples=samples)

    def __str__(self) -> str:
        hits = ("no cache" if not self.cache_tokens else "no look-ups" if self.hit_rate is None
                else f"{100 * self.hit_rate:.1f} % hits")
        moved = ", ".join(f"{name} {count / 2**20:.1f} MiB" for name, count in self.bytes.items())
        mass = ("" if self.attention_mass is None
                else f" with {100 * self.attention_mass:.1f} % of the attention's mass")
        return (f"{self.rows} rows of up to {self.tokens} tokens, {self.attended:.0f} entries "
                f"attended to{mass}, {hits}; moved: {moved}")


def device_bytes(runtime, counters: dict) -> int:
    """Returns the device memory that a sequence takes while it decodes: rows that stay there, its
    index, and its share of the cache of rows."""
    row = 2 * runtime.head_dim * (4 if runtime.dtype == "f32" else 2)
    cached = counters["cache"]["capacity_tokens"] * runtime.layers * runtime.kv_heads
    return runtime.device_bytes(counters["length"]) + cached * row


def add_counters(total: dict, one: dict) -> None:
    """Adds a sequence's counters to `total`, so that those of many closed ones take no room."""
    for name, value in one.items():
        if isinstance(value, dict):
            add_counters(total.setdefault(name, {}), value)
        elif name in ("length", "budget_tokens", "capacity_tokens"):
            total[name] = max(total.get(name, 0), value)
        else:
            total[name] = total.get(name, 0) + value
