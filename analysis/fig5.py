"""The paper's Figure 5: as Figure 1 with ReLU inputs, whose tokens are correlated; 10 trials of 100,000 networks."""

import fig1
import matplotlib.pyplot as plt
from plotting import main


def compute(quick: bool) -> dict:
    """Figure 1 with ReLU."""
    return fig1.compute(quick, activation="relu", samples=5_000 if quick else 100_000)


def draw(results: dict) -> plt.Figure:
    """Figure 1 with ReLU."""
    return fig1.draw(results)


if __name__ == "__main__":
    main("fig5", compute, draw)
