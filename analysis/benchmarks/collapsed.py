"""What does an exact draw at finite width cost, and how does that grow?

One token, four tokens, clip inputs, float32. Against NumPy's Generator drawing the same numbers of normals and chi-squares, and
against the network drawn weight by weight. Then time a network for widths 64 .. 65,536 and for 1 .. 128 heads, drawn as
figures/collapsed_cost.png.
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from timing import fastest, record

from hierattn import Architecture, FiniteWidth, RandomInputs, network
from hierattn.law import one_token

HEADS, TOKENS, WIDTH, NETWORKS, EXPLICIT = 2, 4, 1024, 2**21, 20
key = jax.random.key(0)


def collapsed(width: int, heads: int, networks: int):
    law = FiniteWidth(Architecture(heads=heads), RandomInputs(width, TOKENS))
    return lambda: list(one_token.stream(law, key, networks))


def numpy_numbers(networks: int):
    """The normals and chi-squares of `one_token.from_wide_inputs` (its docstring names them)."""
    rng, H, m = np.random.default_rng(0), HEADS, TOKENS
    normals, chi_squares = H * m + H * (H - 1) + H, 1 + H + 1 + H + 2 * H

    def draw():
        for _ in range(networks // 2**15):
            rng.standard_normal((normals, 2**15))
            rng.chisquare(WIDTH, (chi_squares, 2**15))

    return draw, normals, chi_squares


def explicit():
    return network.simulate(key, Architecture(heads=HEADS), RandomInputs(WIDTH, TOKENS), EXPLICIT).y


numbers, normals, chi_squares = numpy_numbers(NETWORKS)
times = fastest({"collapsed": collapsed(WIDTH, HEADS, NETWORKS), "numpy": numbers, "explicit": explicit}, repeats=5)
each = {"collapsed": times["collapsed"] / NETWORKS, "explicit": times["explicit"] / EXPLICIT}
print(f"n = {WIDTH}, H = {HEADS}, s = {TOKENS}: {normals} normals and {chi_squares} chi-squares a network")
print(f"  collapsed          {1e6 * each['collapsed']:.3f} us a network, {1e-6 / each['collapsed']:.2f} million/s")
each["numpy"] = times["numpy"] / NETWORKS
print(f"  NumPy's numbers    {1e6 * each['numpy']:.3f} us; collapsed / this = {each['collapsed'] / each['numpy']:.2f}")
print(f"  weight by weight   {1e3 * each['explicit']:.0f} ms; this / collapsed = {each['explicit'] / each['collapsed']:,.0f}")

widths, heads = [64, 256, 1024, 4096, 16384, 65536], [1, 2, 4, 8, 16, 32, 64, 128]
by_width = fastest({str(n): collapsed(n, HEADS, 2**19) for n in widths}, repeats=5)
by_heads = fastest({str(H): collapsed(WIDTH, H, 2**19 // H) for H in heads}, repeats=5)
per_width = [1e6 * by_width[str(n)] / 2**19 for n in widths]
per_head = [1e6 * by_heads[str(H)] / (2**19 // H) for H in heads]
print("  widths " + ", ".join(f"{n}: {t:.2f}" for n, t in zip(widths, per_width, strict=True)) + " us a network")
print(f"  slowest / fastest width = {max(per_width) / min(per_width):.2f}")
print("  heads " + ", ".join(f"{H}: {t:.2f}" for H, t in zip(heads, per_head, strict=True)) + " us a network")
slope = np.polyfit(np.log(heads[3:]), np.log(per_head[3:]), 1)[0]
print(f"  time grows as heads^{slope:.2f} from 8 heads on")

figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.3), layout="constrained")
left.plot(widths, per_width, "o-", color="black")
left.set(xscale="log", xlabel="width $n$", ylabel="microseconds a network", title="flat in the width")
left.set_ylim(0, 2 * max(per_width))
right.plot(heads, per_head, "s-", color="black", label="measured")
right.plot(heads, [per_head[-1] * H / heads[-1] for H in heads], ":", color="#888888", label="proportional to $H$")
right.set(xscale="log", yscale="log", xlabel="heads $H$", title="linear in the heads")
right.legend(frameon=False)
for axes, ticks in ((left, widths), (right, heads)):
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
path = Path(__file__).parent.parent / "figures" / "collapsed_cost.png"
figure.savefig(path, dpi=160, metadata={"Software": None})
print(f"  {path.name}")
record(
    "collapsed",
    {
        "collapsed / NumPy's numbers": each["collapsed"] / each["numpy"],
        "weight by weight / collapsed": each["explicit"] / each["collapsed"],
        "slowest width / fastest": max(per_width) / min(per_width),
        "power of the heads": float(slope),
    },
)
