"""The figure of fits of several layers: both scales of each, with their intervals."""

from typing import Any

from hierattn.reporting.svg import INK, LAW, SEEN, axes, plain, svg

TITLES = {"score_scale": "score_scale (sigma_Q sigma_K)", "value_scale": "value_scale (sigma_V sigma_O)"}


def figure(rows: list[dict[str, Any]]) -> str | None:
    """Posterior means and 90 % intervals, layers from top to bottom; open where chains did not converge. None if all failed."""
    shown = {k: row for k, row in enumerate(rows) if None not in (row["score_scale"], row["value_scale"])}
    if not shown:
        return None
    labels = [plain(row["layer"]) + ("" if k in shown else " (failed)") for k, row in enumerate(rows)]
    with axes(width=7.2, height=1.2 + 0.28 * len(rows)) as (drawing, _):
        drawing.clear()
        for ax, (name, title) in zip(drawing.subplots(1, 2, sharey=True), TITLES.items(), strict=True):
            for k, row in shown.items():
                settled = row["verdict"] == "CONVERGED"
                ax.plot([row[f"{name}_eti90_lb"], row[f"{name}_eti90_ub"]], [k, k], color=LAW if settled else INK, lw=1.4)
                ax.plot(row[name], k, "o", color=SEEN, mfc=SEEN if settled else "none", ms=5)
            ax.set(title=title, xlabel="mean and 90 % interval", ylim=(len(rows) - 0.5, -0.5))
            ax.set_yticks(range(len(rows)), labels)
        return svg(drawing, "layers")
