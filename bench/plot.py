"""One picture: rates beside Kafka's, and broker processor time per GB."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.figures import figures

_COLOURS = {"kafka": "#8c8c8c", "tidelog": "#0b6e99", "bare": "#d9c58b"}
_LABELS = {"kafka": "Apache Kafka", "tidelog": "Tidelog", "bare": "bare C loop"}
_RATES = {"throughput": "records_per_s", "limit": "records_per_s", "requests": "requests_per_s"}


def draw(results: Mapping[str, Any], path: Path) -> str | None:
    """Write the plot and return its file name, or None where both sides were not measured."""
    rows = [row for row in results["rows"] if {"kafka", "tidelog"} <= row["rounds"].keys()]
    rows = [row for row in rows if row["kind"] in _RATES]
    if not rows:
        return None
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tidelog"  # the same figures give the same file
    from matplotlib import pyplot

    size = (13, 1.2 + 0.62 * len(rows))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=size, sharey=True)
    _rates(left, rows)
    _processor_time(right, rows)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path.name


def _rates(axes: Any, rows: list[Mapping[str, Any]]) -> None:
    """Bars as multiples of Kafka's median, since the rows differ by orders of magnitude."""

    def multiples(row: Mapping[str, Any], peer: str) -> tuple[float, float, float]:
        name = _RATES[row["kind"]]
        base = figures(row["rounds"]["kafka"])[name].median
        own = figures(row["rounds"][peer])[name]
        return own.median / base, own.low / base, own.high / base

    _bars(axes, rows, multiples)
    axes.axvline(0.9, color="#b03030", linewidth=1, linestyle="--", label="floor: 90 %")
    axes.set_xlabel("rate, Apache Kafka = 1 (more is better)")
    axes.legend(loc="lower right", fontsize=8)


def _processor_time(axes: Any, rows: list[Mapping[str, Any]]) -> None:
    def seconds(row: Mapping[str, Any], peer: str) -> tuple[float, float, float]:
        own = figures(row["rounds"][peer]).get("cpu_s_per_gb")
        return (own.median, own.low, own.high) if own else (0.0, 0.0, 0.0)

    _bars(axes, rows, seconds)
    axes.set_xlabel("broker CPU seconds per GB (less is better)")


def _bars(axes: Any, rows: list[Mapping[str, Any]], values: Any) -> None:
    height = 0.27
    seen = set()
    for place, row in enumerate(rows):
        for shift, peer in enumerate(("kafka", "tidelog", "bare")):
            if peer not in row["rounds"]:
                continue
            median, low, high = values(row, peer)
            axes.barh(
                place + (shift - 1) * height,
                median,
                height,
                color=_COLOURS[peer],
                xerr=[[median - low], [high - median]],
                error_kw={"linewidth": 0.8},
                label=None if peer in seen else _LABELS[peer],
            )
            seen.add(peer)
    axes.set_yticks(range(len(rows)), [row["title"] for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
