"""Medians, percentiles and ratios with confidence intervals. Standard library only."""
import random
import statistics


def percentile(values, percent):
    """Linear between the two nearest, as numpy does."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary_ms(seconds):
    """Count, p50 and p95 of a series of seconds, in milliseconds."""
    if not seconds:
        return {"n": 0}
    return {"n": len(seconds), "p50_ms": round(percentile(seconds, 50) * 1e3, 1), "p95_ms": round(percentile(seconds, 95) * 1e3, 1)}


def interval(statistic, *columns, draws=4000, seed=1):
    """Bootstrap over rows: (value, low, high) of statistic(*columns), 95 %. Columns of equal length are drawn together."""
    source = random.Random(seed)
    count = len(columns[0])
    values = []
    for _ in range(draws):
        rows = [source.randrange(count) for _ in range(count)]
        values.append(statistic(*[[column[i] for i in rows] for column in columns]))
    return statistic(*columns), percentile(values, 2.5), percentile(values, 97.5)


def pair_ratio(top, bottom):
    """Median of the pairs' ratios with its 95 % interval, as a dictionary."""
    value, low, high = interval(statistics.median, [a / b for a, b in zip(top, bottom)])
    return {"ratio": round(value, 4), "low": round(low, 4), "high": round(high, 4)}
