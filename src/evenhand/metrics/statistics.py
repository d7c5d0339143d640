"""Is a difference more than chance? Two sources of chance are asked: the training seed and the users.

A paired t test over seeds says whether training again would give the same answer, a paired bootstrap over
users whether other users would; a verdict needs both, and says which tests it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.metrics.catalogue import Metric, named
from evenhand.utils.errors import InputError

if TYPE_CHECKING:
    from evenhand.metrics.evaluate import UserMetrics

CONFIDENCE = 0.95
ROUNDING = 1e-12
"""Differences smaller than this share of the numbers compared are rounding, and count as zero."""
LEAST_USERS = 20
"""With fewer users no difference is called more than chance: a bootstrap over so few is far too sure of itself."""
CHUNK_CELLS = 2**21
"""The bootstrap draws its weights [draws, users] in blocks of about this many cells."""


@dataclass(frozen=True)
class Summary:
    """A number that was measured once per seed."""

    mean: float
    std: float | None
    """With ddof=1; None for one seed."""
    values: tuple[float, ...]
    """One per seed. Where one of them is undefined (nan), so are mean and std."""

    def to_json(self, digits: int | None = None) -> dict[str, Any]:
        """As in the `--json` of every command: nan becomes null. Rounded to `digits`, a file stays small."""

        def short(value: float | None) -> float | None:
            known = _null(value)
            return known if known is None or digits is None else round(known, digits)

        return {"mean": short(self.mean), "std": short(self.std), "values": [short(v) for v in self.values]}


def summarise(values: Sequence[float] | np.ndarray) -> Summary:
    """Mean and sample standard deviation of one value per seed.

    >>> summarise([1.0, 2.0, 3.0])
    Summary(mean=2.0, std=1.0, values=(1.0, 2.0, 3.0))
    >>> summarise([0.5]).std is None
    True
    """
    array = np.asarray(values, dtype=np.float64).ravel()
    if not len(array):
        raise InputError("there is no value to summarise; give one per seed.")
    std = float(array.std(ddof=1)) if len(array) > 1 else None
    return Summary(float(array.mean()), std, tuple(array.tolist()))


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval over users; None where there is no interval to give."""

    value: float
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, float | None]:
        return {"value": _null(self.value), "low": self.low, "high": self.high}


def brief(value: Summary | Estimate) -> str:
    """The number with its uncertainty.

    >>> brief(summarise([0.1, 0.3])), brief(Estimate(0.25, 0.2, 0.3)), brief(Estimate(math.nan))
    ('0.2000 ± 0.1414', '0.2500 [0.2000, 0.3000]', '–')
    """
    middle = value.mean if isinstance(value, Summary) else value.value
    if math.isnan(middle):
        return "–"
    if isinstance(value, Summary):
        return f"{middle:.4f}" + ("" if value.std is None else f" ± {value.std:.4f}")
    return f"{middle:.4f}" + ("" if value.low is None else f" [{value.low:.4f}, {value.high:.4f}]")


@dataclass(frozen=True)
class Interval:
    """A difference a − b with its 95 % interval and two-sided p value."""

    difference: float
    low: float
    high: float
    p: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_over_seeds(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> Interval | None:
    """The paired t test of a − b, where a[s] and b[s] come from the same seed.

    None where nothing can be said: one seed, or an undefined value. Differences that are all the same (two
    deterministic methods) leave no doubt over seeds: the interval is a point, p is 1 at zero and 0 elsewhere.

    >>> found = paired_over_seeds([0.42, 0.44, 0.43], [0.40, 0.41, 0.42])
    >>> [round(x, 4) for x in (found.difference, found.low, found.high, found.p)]
    [0.02, -0.0048, 0.0448, 0.0742]
    """
    gap = _paired(a, b, "seed")
    n = len(gap)
    if n < 2 or not np.isfinite(gap).all():
        return None
    difference = float(gap.mean())
    error = float(gap.std(ddof=1)) / math.sqrt(n)
    noise = ROUNDING * float(max(np.abs(a).max(), np.abs(b).max()))
    return _t_interval(difference, error, n, noise)


def bootstrap_over_users(a: np.ndarray, b: np.ndarray, draws: int = 1000, seed: int = 0) -> Interval | None:
    """The paired bootstrap of mean(a) − mean(b): a[u] and b[u] are the values of one user under both methods.

    Average over seeds first. Each draw weighs every user by Poisson(1), the large-n form of resampling with
    replacement that needs one pass over the users. The interval holds the central 95 % of the draws. None
    for fewer than two users or an undefined value.
    """
    _paired(a, b, "user")
    ones = np.ones(np.size(a))
    return bootstrap_ratios_over_users(a, ones, b, ones, draws=draws, seed=seed)


def bootstrap_ratios_over_users(*sides: np.ndarray, draws: int = 1000, seed: int = 0) -> Interval | None:
    """The same for Σ a_num / Σ a_den − Σ b_num / Σ b_den; the four columns come in this order.

    Pooled rates bring their own numerators and denominators. The mean over users for whom a rate is defined
    is one too: the numerator is the user's rate (0 where undefined), the denominator 1 (0 where undefined).
    None for fewer than two users or when either sum of denominators is zero.
    """

    def difference(sums: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return _without_rounding_error(sums[..., 0] / sums[..., 1], sums[..., 2] / sums[..., 3])

    columns = [np.asarray(side, dtype=np.float64).ravel() for side in sides]
    if len({len(column) for column in columns}) > 1:
        raise InputError("the numerators and denominators must hold the same users, but differ in length.")
    return _interval(difference, np.column_stack(columns), draws, seed)


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's adjustment for asking several questions at once; nan (no test) stays nan and is not counted.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64).ravel()
    asked = np.flatnonzero(~np.isnan(p))
    order = asked[np.argsort(p[asked], kind="stable")]
    stepped = p[order] * np.arange(len(order), 0, -1)
    adjusted = np.full(len(p), np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(stepped), 1.0)
    return adjusted


@dataclass(frozen=True)
class Comparison:
    """A difference between two methods, tested over seeds and over users."""

    seeds: Interval | None
    """None for one seed."""
    users: Interval | None
    n_seeds: int
    n_users: int

    @property
    def beyond_uncertainty(self) -> bool:
        """Whether every test that could be made puts zero outside its interval, on one side; never of few users."""
        tests = self._tests
        sides = {test.low > 0 for test in tests}
        certain = bool(tests) and all(test.excludes_zero for test in tests) and len(sides) == 1
        return certain and self.n_users >= LEAST_USERS

    @property
    def p(self) -> float:
        """The larger p value of the tests made, for `holm`; nan without a test."""
        return max((test.p for test in self._tests), default=math.nan)

    @property
    def rests_on(self) -> str:
        """What the verdict rests on, to be put in a sentence.

        >>> Comparison(None, Interval(0.1, 0.05, 0.15, 0.002), n_seeds=1, n_users=943).rests_on
        'a bootstrap over 943 users'
        """
        made = []
        if self.seeds is not None:
            made.append(f"a paired t test over {self.n_seeds} seeds")
        if self.users is not None:
            few = "" if self.n_users >= LEAST_USERS else ", too few to tell"
            made.append(f"a bootstrap over {self.n_users:,} users{few}")
        return " and ".join(made) or "no test"

    @property
    def _tests(self) -> list[Interval]:
        return [test for test in (self.seeds, self.users) if test is not None]


def compare_metric(
    a: Sequence[UserMetrics], b: Sequence[UserMetrics], name: str, draws: int = 1000, seed: int = 0
) -> Comparison:
    """Test a − b on one metric, given the `UserMetrics` of each method at one k, one per seed.

    A method that does not depend on the seed comes with its result repeated.
    """
    if not a or len(a) != len(b):
        raise InputError(f"a paired comparison needs as many seeds of both methods, not {len(a)} and {len(b)}.")
    users = a[0].users
    if any(m.k != a[0].k or not np.array_equal(m.users, users) for m in (*a, *b)):
        raise InputError("a paired comparison needs the same k and the same users for both methods and all seeds.")
    over_seeds = paired_over_seeds([m.mean(name) for m in a], [m.mean(name) for m in b])
    over_users = _over_users(a, b, named(name), draws, seed)
    return Comparison(over_seeds, over_users, n_seeds=len(a), n_users=len(users))


def _over_users(
    a: Sequence[UserMetrics], b: Sequence[UserMetrics], metric: Metric, draws: int, seed: int
) -> Interval | None:
    if metric.of_items is not None:
        return _by_influence(a, b, metric)
    (of_a, value_a), (of_b, value_b) = _columns(a, metric), _columns(b, metric)
    width = of_a.shape[1]

    def difference(sums: np.ndarray) -> np.ndarray:
        return _without_rounding_error(value_a(sums[..., :width]), value_b(sums[..., width:]))

    with np.errstate(divide="ignore", invalid="ignore"):
        return _interval(difference, np.column_stack([of_a, of_b]), draws, seed)


def _columns(runs: Sequence[UserMetrics], metric: Metric) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """Columns per user, averaged over seeds, and the metric as a function of their sums over users."""
    if metric.of_sums is None:
        values = np.array([run.per_user(metric.name) for run in runs])
        ratio = np.column_stack([np.nan_to_num(values).mean(axis=0), (~np.isnan(values)).mean(axis=0)])
        return ratio, lambda sums: sums[..., 0] / sums[..., 1]
    formula, blocks = metric.of_sums, {}

    def total(sums: np.ndarray) -> Any:
        return sums if sums.shape[-1] > 1 else sums[..., 0]

    def asking(name: str) -> Any:
        found = np.array([run.sums[name] for run in runs], dtype=np.float64).mean(axis=0)
        blocks[name] = np.reshape(found, (len(runs[0].users), -1))
        return total(blocks[name].sum(axis=0))

    with np.errstate(divide="ignore", invalid="ignore"):
        formula(asking)
    ends = np.cumsum([block.shape[1] for block in blocks.values()])

    def value(sums: np.ndarray) -> Any:
        parts = dict(zip(blocks, np.split(sums, ends[:-1], axis=-1), strict=True))
        return formula(lambda name: total(parts[name]))

    return np.column_stack(list(blocks.values())), value


def estimate_metric(runs: Sequence[UserMetrics], name: str, draws: int = 200, seed: int = 0) -> Estimate:
    """A metric's mean over seeds, given the `UserMetrics` of each, and its 95 % interval over users.

    The interval lies around the value, within the metric's range, as wide as the spread of a bootstrap says: measures
    such as a distance come out too large in every draw. There is none for
    one user or an undefined value.
    """
    metric, n = named(name), len(runs[0].users)
    value = float(np.mean([run.mean(name) for run in runs]))
    if n < 2 or not math.isfinite(value):
        return Estimate(value)
    if metric.of_items is not None:
        if any(run.slots is None for run in runs):
            return Estimate(value)
        error = _spread_of_sum(_influence(runs, metric))
    else:
        columns, formula = _columns(runs, metric)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = np.asarray(formula(_poisson_sums(columns, draws, seed)))
        drawn = drawn[np.isfinite(drawn)]
        error = float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan
    if not math.isfinite(error):
        return Estimate(value)
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * error
    return Estimate(value, max(metric.low, value - half), min(metric.high, value + half))


def _by_influence(a: Sequence[UserMetrics], b: Sequence[UserMetrics], metric: Metric) -> Interval | None:
    """For a function of every item's slots: to first order, from what each user's lists add to it."""
    n = len(a[0].users)
    if n < 2 or any(run.slots is None for run in (*a, *b)):
        return None
    difference = float(np.mean([r.mean(metric.name) for r in a]) - np.mean([r.mean(metric.name) for r in b]))
    error = _spread_of_sum(_influence(a, metric) - _influence(b, metric))
    if not math.isfinite(difference):
        return None
    return _t_interval(difference, error, n)


def _influence(runs: Sequence[UserMetrics], metric: Metric) -> np.ndarray:
    """float64 [n]: the sum of the metric's slopes over each user's list, averaged over seeds."""
    felt = []
    for run in runs:
        assert run.slots is not None
        assert metric.slope is not None
        # One more entry answers for empty slots and unknown items, which have no slope.
        slope = np.append(metric.slope(run.item_slots), 0.0)
        top = run.slots.top[:, : run.k]
        felt.append(slope[np.where(top < 0, len(slope) - 1, top)].sum(axis=1))
    return np.mean(felt, axis=0)


def _spread_of_sum(felt: np.ndarray) -> float:
    """The standard error of a sum over n users, by what each of them adds to it."""
    return math.sqrt(float(np.square(felt - felt.mean()).sum()) * len(felt) / (len(felt) - 1))


def _t_interval(difference: float, error: float, n: int, noise: float = 0.0) -> Interval:
    """By Student's t with n - 1 degrees of freedom; a point where the error is no more than noise."""
    if error <= noise:
        same = abs(difference) <= noise
        point = 0.0 if same else difference
        return Interval(point, point, point, p=1.0 if same else 0.0)
    half = t_quantile(0.5 + CONFIDENCE / 2, n - 1) * error
    return Interval(difference, difference - half, difference + half, t_two_sided(difference / error, n - 1))


def _interval(
    difference: Callable[[np.ndarray], np.ndarray], columns: np.ndarray, draws: int, seed: int
) -> Interval | None:
    """The central 95 % of a difference that is a function of the columns' sums over users."""
    if draws < 1:
        raise InputError(f"a bootstrap needs at least one draw, not {draws}.")
    observed = float(difference(columns.sum(axis=0)))
    if len(columns) < 2 or not math.isfinite(observed):
        return None
    drawn = difference(_poisson_sums(columns, draws, seed))
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return None
    low, high = np.quantile(drawn, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    below, above = np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)
    # The observed data count as one more draw: p is never 0, and small samples are not flattered.
    p = min(1.0, 2.0 * (int(min(below, above)) + 1) / (len(drawn) + 1))
    return Interval(observed, float(low), float(high), p)


def _without_rounding_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a − b, and zero where that is rounding."""
    return np.where(np.abs(a - b) <= ROUNDING * np.maximum(np.abs(a), np.abs(b)), 0.0, a - b)


def _poisson_sums(columns: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """[draws, columns]: the columns' sums over users, each draw with its own Poisson(1) weights."""
    generator = np.random.default_rng(seed)
    weight_of = poisson_table()
    sums = np.zeros((draws, columns.shape[1]))
    step = max(1, CHUNK_CELLS // draws)
    for start in range(0, len(columns), step):
        block = columns[start : start + step]
        uniform = generator.integers(0, len(weight_of), (draws, len(block)), dtype=np.uint16)
        sums += weight_of[uniform] @ block
    return sums


def poisson_table() -> np.ndarray:
    """float64 [65536]: the Poisson(1) quantile of each 16-bit number.

    Looking a weight up is several times faster than drawing it, and exact to the 16th bit of a probability.
    """
    cumulative = np.cumsum([math.exp(-1) / math.factorial(n) for n in range(12)])
    return np.searchsorted(cumulative, (np.arange(65536) + 0.5) / 65536).astype(np.float64)


def _paired(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, what: str) -> np.ndarray:
    first, second = (np.asarray(side, dtype=np.float64).ravel() for side in (a, b))
    if len(first) != len(second):
        raise InputError(f"a paired test needs one value per {what} on both sides, not {len(first)} and {len(second)}.")
    return first - second


def _null(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def t_two_sided(t: float, df: float) -> float:
    """P(|T| ≥ |t|) for `df` degrees of freedom.

    >>> round(t_two_sided(1.0, df=1), 12)
    0.5
    """
    from scipy.special import betainc  # loaded when first asked for

    square = t * t
    if math.isinf(square):
        return 0.0
    # Each form is exact where its argument is small; the other one would lose the digits of t there.
    if square < df:
        return 1.0 - float(betainc(0.5, df / 2, square / (df + square)))
    return float(betainc(df / 2, 0.5, df / (df + square)))


@lru_cache(maxsize=1024)  # an audit asks for the same ones again and again
def t_quantile(probability: float, df: float) -> float:
    """The t with P(T ≤ t) = probability, for a probability strictly between 0 and 1.

    >>> round(t_quantile(0.975, df=4), 4)
    2.7764
    """
    from scipy.special import betaincinv  # its own quantile of t has nine digits in older versions

    tail = 2 * min(probability, 1 - probability)
    if tail > 0.5:  # as above
        within = float(betaincinv(0.5, df / 2, 1 - tail))
        t = math.sqrt(df * within / (1 - within))
    else:
        beyond = float(betaincinv(df / 2, 0.5, tail))
        t = math.sqrt(df * (1 - beyond) / beyond)
    return t if probability > 0.5 else -t
