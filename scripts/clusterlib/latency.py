"""Latencies: histograms of Prometheus, and lists of measured times.

A quantile of a histogram is interpolated linearly within its bucket, so it is as exact as the bucket is narrow: etcd's
begin at 0 .. 1 ms and double. The mean (sum by count) is exact.
"""

import math
import re


class Histogram:
    """Counts up to each limit, in order; limits in seconds, the last one infinite."""

    def __init__(self, limits, counts, total):
        assert len(limits) == len(counts) and list(limits) == sorted(limits), "buckets are in order"
        self.limits, self.counts, self.sum = list(limits), list(counts), total

    @classmethod
    def parse(cls, text, name):
        """Of the histogram of this name in a page of /metrics; ValueError if it is not there."""
        buckets = {}
        for limit, count in re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)$', text, re.M):
            buckets[math.inf if limit == "+Inf" else float(limit)] = float(count)
        total = re.search(rf"^{name}_sum (\S+)$", text, re.M)
        if not buckets or not total:
            raise ValueError(f"no histogram {name}")
        limits = sorted(buckets)
        return cls(limits, [buckets[limit] for limit in limits], float(total[1]))

    def since(self, earlier):
        """What was counted after `earlier`."""
        assert self.limits == earlier.limits, "buckets do not change"
        return Histogram(self.limits, [a - b for a, b in zip(self.counts, earlier.counts)], self.sum - earlier.sum)

    @property
    def count(self):
        return self.counts[-1]

    def mean(self):
        """Seconds."""
        return self.sum / self.count if self.count else math.nan

    def quantile(self, q):
        """Seconds, interpolated within the bucket; of the last bucket its lower limit: no more is known."""
        if not self.count:
            return math.nan
        wanted, low, below = q * self.count, 0.0, 0.0
        for limit, count in zip(self.limits, self.counts):
            if count >= wanted and count > below:
                if math.isinf(limit):
                    return low
                return low + (limit - low) * (wanted - below) / (count - below)
            low, below = limit, count
        return low


def quantile(times, q):
    """Of a list of measured times: the least one that at least the share `q` does not exceed."""
    if not times:
        return math.nan
    ordered = sorted(times)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]
