"""What the papers' texts state of their figures, whose plots are not to be had: each plot that is drawn over the axes
of one has these words beside our own figures. Names of Li's figures have no name before them."""

from __future__ import annotations

import re

__all__ = ["of_figure"]

_STATED = {
    "6-10": "WID takes less time than buffering in general, and the comparison favours it the more, the greater RANGE "
    "is to SLIDE (6.1.5).",
    "6-11": "With more slack errors are fewer and latency is longer; punctuation has better latency and accuracy than "
    "either slack, and generous slack is far more accurate than consistent at like latency (6.1.5).",
    "6-12": "Punctuation has better latency and accuracy than any slack; the best slack is 491 s, and below it latency "
    "does not depend on slack (6.1.5).",
    "6-15": "At 20 tuples a pane and 5 panes a window Paned-WID takes about 30% of the time of WID; panes are better "
    "in many cases (6.2.5).",
    "6-19": "AdaptWID is better than eager aggregation in memory, latency and time, in memory significantly, and the "
    "more so the more small groups there are (6.3.5).",
    "7-5": "Joint punctuation lets the group of the example out one minute earlier than individual does, with windows "
    "of two minutes (7.2).",
    "7-6": "OA-Join does significantly better than OPOB-Join, in memory and latency above all (7.3).",
    "7-7": "OA-Join takes slightly less memory than OPIB-Join for all bands (7.3).",
    "8-7": "At 260,000 groups with 540,000 slots OOP sustains 760,000 (lazy) and 800,000 (slow flush) packets a "
    "second, IOP 400,000; at 66,000 groups about the same; at 520,000 IOP 350,000 (tables of twice that) and "
    "300,000 (8.4.1).",
    "8-8": "As the skew grows the memory of OOP stays relatively flat, that of IOP grows dramatically (8.4.1).",
    "8-9": "OOP takes at most 20% more memory than IOP; below a skew of 20 s the difference is of no consequence "
    "(8.4.1).",
    "8-10": "With the delay of the late tuples the memory of OOP grows more slowly than that of IOP (8.4.2).",
    "8-11": "As the delay of C grows the memory of IOP grows significantly, that of OOP is relatively stable (8.4.2).",
    "Hammad 2003 5": "MQT has the best average response time over all distributions of windows; LWO is second but for "
    "mostly-small (5.1).",
    "Hammad 2003 6": "LWO takes about as long for each window. Over uniform windows MQT and SWF are similar but for "
    "the largest, where MQT is sooner; over mostly-small ones SWF takes half as long for it as over "
    "uniform ones (5.1).",
    "Hammad 2003 7": "Scheduling matters the more, the larger bursts are. MQT improves on LWO by up to 60% and on SWF "
    "by up to 30%, at bursts of 3 (5.2).",
    "Hammad 2003 8": "At bursts of 5 SWF takes 4 s for the largest window, MQT at most 1 s (5.2).",
    "Hammad 2003 9": "MQT has the lowest average response time in all cases; SWF beats LWO where 80% of the queries "
    "have a small window, LWO beats SWF where they have a large one (5.3).",
    "Hammad 2005 5": "Analytic: Filter-Order does not depend on c; Sync-Filter grows with it, up to an improvement of "
    "0.5 (5.2).",
    "Hammad 2005 6": "Analytic: the absolute and relative reduction grows with the rate of the slow stream (5.2).",
    "Hammad 2005 7": "Sync-Filter is the worst at every processing time; Filter-Order hardly varies; Adaptive switches "
    "at c = 0.5 ms (7.2.1).",
    "Hammad 2005 8": "25% are expected of Filter-Order at c = 0.5 ms, about 45% were found; more than 50% at the two "
    "greatest c, where Sync-Filter falls behind the input (7.2.1).",
    "Hammad 2005 9": "At small rates of the slow stream all take more than a minute; Sync-Filter grows more (7.2.2).",
    "Hammad 2005 10": "The improvement of Filter-Order is small at low rates of the slow stream and grows with it; "
    "Adaptive switches at one row a second (7.2.2).",
    "Ding 8": "As the window becomes larger, the savings of PWJoin become more and more significant (6.2).",
    "Ding 9": "With a small window WJoin is slightly better, as each punctuation purges few tuples; as the window "
    "becomes larger PWJoin performs apparently better (6.2).",
    "Ding 10": "Even if no punctuation matches a tuple, the extra overhead of PWJoin is insignificant (6.2).",
    "Ding 11": "PWJoin has an overall higher punctuation output rate than PJoin (6.3).",
    "Ding 12": "PJoin cannot deliver any punctuation; PWJoin provides them regularly (6.3).",
    "Wu 5": "The predicted buffers, with parameters known or monitored, closely follow the optimal ones; accuracy is "
    "100% with known parameters, 99.6% with monitored ones (5.1).",
    "Wu 6": "The margin between predicted and optimal is much wider than for Query 1, because scrambling and rate of a "
    "join's output are upper bounds (5.1).",
    "Wu 7": "The same of S8, which runs ahead; accuracy is between 99.2% and 99.6% in all experiments (5.1).",
    "Wu 8": "With as much memory as WO-Join the accuracy of W-Join is below 40% for both queries; for that of WO-Join "
    "it needs much larger windows (5.1).",
    "Wu 9": "MSF saves little; DBF stays below a certain size whatever the lag is; Hybrid needs the least (5.1).",
    "Wu 10": "Hybrid takes the least memory; in Query 1 DBF takes less than MSF, in Query 2 MSF less than DBF (5.1).",
    "Wu 11": "WO-Join takes almost as long as W-Join, DBF 50% longer than WO-Join, MSF and Hybrid two orders of "
    "magnitude longer (5.1).",
}


def of_figure(name: str) -> tuple[str, str] | None:
    """Of a plot called fig_7_6_latency the figure, "Li on fig. 7-6", and what is stated; hammad_2003_fig_5 and wu_fig_8
    are of other papers. None: it is after no figure of a paper. KeyError where nothing is known of the figure."""
    found = re.match(r"fig_(\d+)_(\d+)", name)
    if found is not None:
        number = f"{found[1]}-{found[2]}"
        return f"Li on fig. {number}", _STATED[number]
    other = re.match(r"(ding|hammad|wu)(_\d{4})?_fig_(\d+)", name)
    if other is None:
        return None
    paper = f"{other[1].capitalize()}{(other[2] or '').replace('_', ' ')}"
    return f"{paper} on fig. {other[3]}", _STATED[f"{paper} {other[3]}"]
