"""``python -m tests.perf.against_kueue [CONFIG …]``: all contenders in Kueue's benchmark, in turn.

Each run has the machine to itself. What ran is kept at once in ``tests/perf/against_kueue.json``,
so a run that was cut off is gone on with: only what is missing of ``--runs`` is run, the portal's
for its newest commit, Kueue's for its pinned version. ``--show`` prints the table and runs nothing.

A run of ``baseline`` takes three to seven minutes for each contender, of ``large`` ten to twenty,
of ``arrivals`` and ``ages`` two.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import django

from tests.controlplane import build
from tests.perf import bench_admission, bench_ages, bench_arrivals
from tests.perf.bench import machine, settings_of
from tests.perf.contenders import CONTENDERS, ROOT, Contender

REPORT: Final = Path(__file__).with_name("against_kueue.json")
RUNS: Final[Mapping[str, int]] = {"baseline": 3, "large": 1, "tas": 1, "arrivals": 1, "ages": 1}
"""How often each contender runs a configuration; the median counts."""
SAYS_NOTHING: Final[Mapping[str, frozenset[str]]] = {"ages": frozenset({"free"})}
"""Who writes nothing of what a configuration measures."""
PARTS: Final = ("etcd", build.KUBERNETES, "kueue", build.UNBRAKED)
# Of a run: what the table shows, with its words.
SHOWN: Final[Mapping[str, str]] = {
    "wall_s": "seconds",
    "cpu_s": "CPU seconds",
    "cpu_ms_per_admission": "CPU ms an admission",
    "peak_rss_mib": "peak MiB",
    "kube-apiserver": "CPU s of kube-apiserver",
    "etcd": "CPU s of etcd",
    **{key: key for key in (*bench_arrivals.KEYS, *bench_ages.KEYS)},
}
_OTHERWISE: Final = {"arrivals": bench_arrivals.measure_one, "ages": bench_ages.measure_one}
"""How the configurations that Kueue's benchmark does not have are measured."""
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.against_kueue", description=__doc__)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help=f"of {', '.join(RUNS)}")
    parser.add_argument("--contender", action="append", choices=list(CONTENDERS))
    parser.add_argument("--runs", type=int, help="of each; by default 3 of baseline, 1 of others")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the workloads")
    parser.add_argument("--show", action="store_true", help="print what is kept")
    given = parser.parse_args()
    unknown = sorted(set(given.configs) - set(RUNS))
    if unknown:
        parser.error(f"no such configuration: {', '.join(unknown)}; there are {', '.join(RUNS)}")
    configs = given.configs or list(RUNS)
    rows: list[Row] = json.loads(REPORT.read_text()) if REPORT.exists() else []
    if not given.show:
        build.ensure(PARTS)
        for config in configs:
            wanted = given.runs or RUNS[config]
            for contender in missing(rows, config, given.scale, wanted, given.contender):
                rows.append(_run(contender, config, given.scale))
                REPORT.write_text(json.dumps(rows, indent=1) + "\n")
    for config in configs:
        for line in table(rows, config, given.scale):
            print(line)
    return 0


def missing(
    rows: Sequence[Row], config: str, scale: float, runs: int, names: Sequence[str] | None
) -> Iterator[Contender]:
    """What is to be run, contender after contender within each turn."""
    have = {
        name: len(list(_of(rows, config, scale, name, subject_of(contender))))
        for name, contender in CONTENDERS.items()
        if (names is None or name in names) and name not in SAYS_NOTHING.get(config, ())
    }
    for turn in range(runs):
        yield from (CONTENDERS[name] for name, count in have.items() if count <= turn)


def subject_of(contender: Contender) -> str:
    """What was measured: the portal's commit, or Kueue's version."""
    if not contender.is_portal:
        return build.kueue_version("kueue")
    command = ["git", "log", "-1", "--format=%h", "--", "clusters", "tests/perf/free_decider.py"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return told.stdout.strip()


def table(rows: Sequence[Row], config: str, scale: float) -> Iterator[str]:
    """Lines of Markdown: medians by contender, of the newest subject; then what bounds each."""
    found = {name: _newest(rows, config, scale, name) for name in CONTENDERS}
    kept = {name: list(of) for name, of in found.items() if of}
    if not kept:
        return
    yield f"{config}, scale {scale:g}"
    yield "| | " + " | ".join(kept) + " |"
    yield "| --- |" + " --- |" * len(kept)
    for key, words in SHOWN.items():
        if not any(key in row for of in kept.values() for row in of):
            continue
        yield f"| {words} | " + " | ".join(_median(of, key) for of in kept.values()) + " |"
    requests = dict.fromkeys(key for of in kept.values() for row in of for key in row["requests"])
    for key in requests:
        cells = (_median([row["requests"] for row in of], key) for of in kept.values())
        yield f"| {key} | " + " | ".join(cells) + " |"
    for key in ("subject", "date", "load_average_before"):
        told = (", ".join(dict.fromkeys(str(row[key]) for row in of)) for of in kept.values())
        yield f"| {key} | " + " | ".join(told) + " |"
    for name in kept:
        yield f"{name} is bound by {CONTENDERS[name].bounds}."


def _of(rows: Sequence[Row], config: str, scale: float, name: str, subject: str) -> Iterator[Row]:
    wanted = {"config": config, "scale": scale, "contender": name, "subject": subject}
    return (row for row in rows if all(row[key] == value for key, value in wanted.items()))


def _newest(rows: Sequence[Row], config: str, scale: float, name: str) -> list[Row]:
    """Runs of the subject that was measured last."""
    last = [row for row in rows if (row["config"], row["contender"]) == (config, name)]
    last = [row for row in last if row["scale"] == scale]
    return list(_of(rows, config, scale, name, last[-1]["subject"])) if last else []


def _median(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    values = [row[key] for row in rows if key in row]
    middle = statistics.median(values) if values else 0
    return f"{middle:,.0f}" if middle >= 1000 else f"{middle:.4g}"


def _run(contender: Contender, config: str, scale: float) -> Row:
    """One run, and what it was of."""
    print(f"{config}: {contender.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="against-kueue-") as scratch:
        folder = Path(scratch)
        if (measure := _OTHERWISE.get(config)) is not None:
            measured = measure(contender, folder / contender.name, scale=scale)
        else:
            run = bench_admission.prepare(folder, config, scale)
            measured = bench_admission.measure_one(contender, run, folder / contender.name)
            measured["workloads"] = run.workloads
    row = {
        "config": config,
        "scale": scale,
        "contender": contender.name,
        "subject": subject_of(contender),
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "machine": machine(),
        **measured,
        **measured["cpu_s_of_others"],
        "cpu_ms_per_admission": round(1000 * measured["cpu_s"] / measured["workloads"], 2),
    }
    print(f"  {row['wall_s']} s, {row['cpu_s']} s of CPU, {row['peak_rss_mib']} MiB", flush=True)
    return row


if __name__ == "__main__":
    os.environ.update(settings_of("sqlite:////dev/null"))
    django.setup()
    sys.exit(main())
