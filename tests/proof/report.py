"""The page over all results: one HTML file that needs nothing else."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from seb_appliance import __version__
from tests.proof.report_charts import bars, over_time
from tests.proof.results import Result, read_results
from tests.proof.units import head
from tests.proof.violations import PROPERTIES

_DRAWN: Final = {"operations", "faults", "latencies_ms", "memory_mib", "findings"}
_LEGEND: Final = (
    "Each part attacks an appliance in units: runs of their own, each with its seed. Calls are "
    "requests of clients (of decoders: executions), faults what was done on purpose. "
    "Each history is held against the properties at the end of this page. Cut short: not all "
    "units were done (there was no more time, or a program is not on this machine), and those "
    "that were done found nothing wrong. p99: 99 of 100 took at most so long; p100 is the "
    "slowest. K1 to K20 are places in the program at which it kills itself (docs/PROOF.md)."
)
# What the simulation calls its faults.
_SIMULATED: Final = {
    "lost_request": "request to the bucket lost",
    "lost_answer": "answer of the bucket lost",
    "late": "request lands after its sender gave up",
    "refused": "bucket refuses",
    "denied": "bucket denies access",
    "false_412": "412 although it was stored",
    "conflict": "409 of the bucket",
    "flipped": "bit of an answer flipped",
    "cut": "answer cut short",
}
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --faint: #6f6f6f; --rule: #d9d9d9;
  --line: #0b63b6; --good: #17692c; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161616; --faint: #9d9d9d;
  --rule: #3a3a3a; --line: #6fb3f2; --good: #7fd494; --bad: #ff8a80; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
h3 { font-size: .95rem; margin: 1rem 0 .3rem; font-weight: 600; }
p { margin: .3rem 0; } .faint { color: var(--faint); }
.passed { color: var(--good); } .failed, .wrong { color: var(--bad); font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: left; padding: .2rem 1rem .2rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; font-weight: normal; } th { color: var(--faint); }
td.number, th.number { text-align: right; white-space: nowrap; } .scroll { overflow-x: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 13px; }
svg { width: 100%; min-width: 36rem; height: auto; display: block; }
svg text { fill: var(--faint); font-size: 12px; }
svg rect { fill: var(--line); } svg .grid { stroke: var(--rule); }
svg polyline { fill: none; stroke: var(--line); stroke-width: 2; }
"""


def write_report(results: Path, out: Path) -> Path:
    """The page over what lies in `results`, at `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(read_results(results), versions()), encoding="utf-8")
    return out


def versions() -> dict[str, str]:
    """What was proved, and on what."""
    commit = head()
    return {
        "Seb Appliance": f"{__version__} ({commit})" if commit else __version__,
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "kernel": f"{platform.system()} {platform.release()}, {os.cpu_count()} processors",
        "this page": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def page(results: list[Result], told: Mapping[str, str]) -> str:
    """A whole HTML document."""
    verdicts = Counter(result.verdict for result in results)
    faults: Counter[str] = Counter()
    for result in results:
        faults.update(_faults(result))
    operations = sum(int(result.details.get("operations", 0)) for result in results)
    minutes = sum(result.seconds for result in results) / 60
    summary = f"{_verdicts(verdicts)} · {operations:,} calls · {sum(faults.values()):,} faults"
    summary += f" · {minutes:,.0f} minutes of running"
    parts = [
        "<h1>Proof</h1>",
        f'<p class="faint">{escape(" · ".join(f"{k} {v}" for k, v in told.items()))}</p>',
        f"<p>{summary}</p>",
        f'<p class="faint">{_LEGEND}</p>',
        "<h2>Parts</h2>",
        _table_of_parts(results),
        _judges(results),
        "<h2>Faults by kind</h2>" + bars(dict(faults.most_common())) if faults else "",
        *(_part(result) for result in results),
        "<h2>What is held against every history</h2>",
        "<table>" + "".join(_row(law, what) for law, what in PROPERTIES.items()) + "</table>",
    ]
    head = f"<title>Seb Appliance: proof</title><style>{_STYLE}</style>"
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{meta}{head}</head><body>{body}</body></html>\n'


def _faults(result: Result) -> Counter[str]:
    """How many of each kind, in the words of the page."""
    found: Counter[str] = Counter()
    for name, count in result.details.get("faults", {}).items():
        found[_SIMULATED.get(name, name)] += count
    return found


def _verdicts(verdicts: Mapping[str, int]) -> str:
    told = [f'<span class="{name.split()[0]}">{count} {name}</span>'
            for name, count in sorted(verdicts.items())]  # fmt: skip
    return ", ".join(told) if told else "nothing was run"


def _table_of_parts(results: list[Result]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{result.name}">{escape(result.what)}</a></td>'
        f"<td>{escape(result.asked)}</td><td>{escape(result.got)}</td>"
        f'<td class="{result.verdict.split()[0]}">{result.verdict}</td>'
        f'<td class="number">{result.seconds:,.0f} s</td></tr>'
        for result in results
    )
    head = "<th>what</th><th>asked for</th><th>done</th><th>verdict</th>"
    return (
        '<div class="scroll" role="region" aria-label="Parts" tabindex="0">'
        f'<table><tr>{head}<th class="number">time</th></tr>{rows}</table></div>'
    )


def _judges(results: list[Result]) -> str:
    """Who judged how many operations, and what came of it: a part whose history is bad has a
    finding."""
    operations: Counter[str] = Counter()
    for result in results:
        operations.update(result.details.get("judged operations", {}))
    findings = [str(one) for result in results for one in result.details.get("findings", ())]
    rows = "".join(
        f'<tr><td>{escape(judge)}</td><td class="number">{count:,}</td>'
        f"<td>{_opinion(judge, findings)}</td></tr>"
        for judge, count in operations.items()
    )
    head = '<th>judge</th><th class="number">operations</th><th>verdict</th>'
    return f"<h2>Judges of other projects</h2><table><tr>{head}</tr>{rows}</table>" if rows else ""


def _opinion(judge: str, findings: list[str]) -> str:
    found = any(f"{judge} found" in one for one in findings)
    return '<span class="wrong">violations</span>' if found else "no violation"


def _part(result: Result) -> str:
    found: list[str] = [f'<h2 id="{result.name}">{escape(result.what)}</h2>']
    found.append(
        f'<p><span class="{result.verdict.split()[0]}">{result.verdict}</span> · '
        f"{escape(result.got)}" + (f" · seed {escape(result.seed)}" if result.seed else "") + "</p>"
    )
    details = result.details
    if findings := details.get("findings"):
        found += ["<h3>Findings</h3>", *(f"<pre>{escape(str(one))}</pre>" for one in findings)]
    faults = _faults(result)
    if len(set(faults.values())) > 1:  # where all are as many, the chart of all parts says it
        found += ["<h3>Faults</h3>", bars(dict(faults.most_common()))]
    if latencies := details.get("latencies_ms"):
        found += ["<h3>Latency of an acknowledgement, beside the faults</h3>"]
        found.append(bars(latencies, " ms"))
    if memory := details.get("memory_mib"):
        found += ["<h3>Memory (MiB)</h3>", over_time(memory, "MiB")]
    rows = [_row(name, value) for name, value in details.items() if name not in _DRAWN]
    if rows:
        found += ["<h3>Numbers</h3><table>", *rows, "</table>"]
    return "".join(found)


def _row(name: str, value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(f"{key}: {_amount(inner)}" for key, inner in value.items())
    return f"<tr><td>{escape(name)}</td><td>{escape(_amount(value))}</td></tr>"


def _amount(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
