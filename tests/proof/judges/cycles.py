"""Cycles of transactions that depend on one another, by the definitions of Adya and Elle.

    ww   wrote the version before          G0        a cycle of ww
    wr   wrote the version that was read   G1c       of ww and wr
    rw   read the version before           G-single  with one rw
    rt   was over before it began          G2        with several; `-realtime`: only with rt

A poll that was told where the log ends has read the whole list up to there.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from tests.proof.history import NEVER
from tests.proof.judges.kafka_rules import Analysis, Anomaly
from tests.proof.judges.transactions import Transaction

Graph = dict[int, dict[int, str]]  # the kind of the strongest edge from one to another
_KINDS: Final = ("ww", "wr", "rw", "rt")
_WRITES, _READS = ("ww",), ("ww", "wr")


def cycles(found: Analysis) -> Iterator[Anomaly]:
    """One for each component of transactions that all depend on one another, and reads in the
    middle of a transaction."""
    nodes = [one for one in found.transactions if one.outcome == "ok" or found.took_place(one)]
    graph: Graph = {i: {} for i in range(len(nodes))}
    yield from _dependencies(found, nodes, graph)
    _real_time(nodes, graph)
    for component in _components(graph):
        name, cycle = _smallest(graph, component)
        steps = [f"{nodes[a]} --{graph[a][b]}→" for a, b in pairwise(cycle)]
        yield Anomaly(name, " ".join([*steps, str(nodes[cycle[-1]])]))


def _link(graph: Graph, before: int, after: int, kind: str) -> None:
    known = graph[before].get(after, "rt")
    if before != after:
        graph[before][after] = min(known, kind, key=_KINDS.index)


def _dependencies(found: Analysis, nodes: list[Transaction], graph: Graph) -> Iterator[Anomaly]:
    number = {id(one): i for i, one in enumerate(nodes)}
    writers: dict[str, list[int | None]] = {}
    for log, values_of_log in found.values.items():
        known = [found.writer.get((log, values[0])) for values in values_of_log]
        writers[log] = [None if one is None else number[id(one)] for one in known]
        if log in found.compacted:
            continue
        for before, after in pairwise(writers[log]):
            if before is not None and after is not None:
                _link(graph, before, after, "ww")
    for reader, one in enumerate(nodes):
        for log, end in one.ends.items():
            if log in found.compacted:
                continue
            length, known_writers = found.length(log, end), writers.get(log, [])
            seen = known_writers[length - 1] if length else None
            unseen = known_writers[length] if length < len(known_writers) else None
            if seen is not None:
                _link(graph, seen, reader, "wr")
            if unseen is not None:
                _link(graph, reader, unseen, "rw")
            if one.is_exact and seen is not None and seen == unseen:
                yield Anomaly("G1b", f"{one} ends within {nodes[seen]}")


def _real_time(nodes: list[Transaction], graph: Graph) -> None:
    """Edges from those that are the last to be over, of those that were over before another
    began: the others follow from these."""
    exact = [i for i, one in enumerate(nodes) if one.is_exact]
    exact.sort(key=lambda i: nodes[i].call_s)
    running: list[tuple[float, int]] = []
    last: list[int] = []
    for i in exact:
        while running and running[0][0] < nodes[i].call_s:
            over = heapq.heappop(running)[1]
            # Those that were over before this one began come before it.
            last = [n for n in last if nodes[n].back_s >= nodes[over].call_s]
            last.append(over)
        for before in last:
            _link(graph, before, i, "rt")
        if nodes[i].back_s < NEVER:
            heapq.heappush(running, (nodes[i].back_s, i))


def _components(graph: Graph, kinds: Collection[str] = _KINDS) -> Iterator[set[int]]:
    """Those with more than one transaction (Tarjan, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in graph:
        work = [(root, iter(graph[root].items()))] if root not in order else []
        while work:
            node, edges = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            for after, kind in edges:
                if after not in graph or kind not in kinds:
                    continue
                if after not in order:
                    work.append((after, iter(graph[after].items())))
                    break
                if after in on_stack:
                    low[node] = min(low[node], order[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = {stack.pop()}
                    while node not in component:
                        component.add(stack.pop())
                    on_stack -= component
                    if len(component) > 1:
                        yield component


def _smallest(graph: Graph, component: set[int]) -> tuple[str, list[int]]:
    """The worst anomaly of a component, and a short cycle that shows it."""
    inside = {a: {b: k for b, k in graph[a].items() if b in component} for a in component}
    for suffix, more in (("", ()), ("-realtime", ("rt",))):
        for name, kinds in (("G0", (*_WRITES, *more)), ("G1c", (*_READS, *more))):
            for smaller in _components(inside, kinds):
                start = min(smaller)
                return name + suffix, _way(inside, start, start, kinds)
        for before, edges in inside.items():
            for after, kind in edges.items():
                if kind == "rw" and (way := _way(inside, after, before, (*_READS, *more))):
                    return f"G-single{suffix}", [before, *way]
        for smaller in _components(inside, (*_READS, "rw", *more)):
            start = min(smaller)
            return f"G2{suffix}", _way(inside, start, start, (*_READS, "rw", *more))
    raise AssertionError("a component has a cycle")


def _way(graph: Graph, start: int, goal: int, kinds: Collection[str]) -> list[int]:
    """The shortest from `start` to `goal`, both included, of at least one edge; else empty."""
    came: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for after, kind in graph[node].items():
            if kind not in kinds or after in came:
                continue
            came[after] = node
            if after == goal:
                way = [goal]
                while len(way) == 1 or way[-1] != start:
                    way.append(came[way[-1]])
                return way[::-1]
            waiting.append(after)
    return []
