"""The law in a minute: print it, sample it, hold the sample against it. `make demo` runs this.

python analysis/demo.py [--out demo]
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray

HERE = Path(__file__).parent
LAYER = ["--heads", "2", "--tokens", "4"]
NETWORKS, COORDINATES = 1000, 16


def hierattn(*arguments: str) -> None:
    """Run the command line as a user would, showing what was typed."""
    print("$ hierattn", *arguments, flush=True)
    subprocess.run([Path(sys.executable).parent / "hierattn", *arguments], check=True)
    print()


def estimates(y: np.ndarray) -> dict[str, tuple[float, float]]:
    """Variance and excess kurtosis of y (network, coordinate) with standard errors; networks are the independent units."""
    m_2, m_4 = (y**2).mean(axis=1), (y**4).mean(axis=1)
    variance, kurtosis = m_2.mean(), m_4.mean() / m_2.mean() ** 2 - 3
    influence = m_4 / variance**2 - 2 * (kurtosis + 3) * m_2 / variance
    root = np.sqrt(len(y))
    return {"variance": (variance, m_2.std(ddof=1) / root), "excess kurtosis": (kurtosis, influence.std(ddof=1) / root)}


def main() -> None:
    """Law, sample, comparison, picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    draws = out / "draws.nc"

    hierattn("law", *LAYER)
    sizes = ["--networks", str(NETWORKS), "--coordinates", str(COORDINATES)]
    hierattn("sample", *LAYER, *sizes, "--out", str(draws), "--force")

    from hierattn import Architecture, Law, kernels

    law = Law(Architecture(heads=2), kernels.activation("clip", 4)).moments()
    with xarray.open_dataset(draws, engine="h5netcdf") as data:
        sample = estimates(data["outputs"].isel(token=0).to_numpy().astype(float))
    print(f"token 0 of {NETWORKS} networks x {COORDINATES} coordinates against the law (standard errors over networks)")
    for (name, (value, error)), truth in zip(sample.items(), (law.variance, law.excess_kurtosis), strict=True):
        print(
            f"  {name:16s} sample {value:.4f} +- {error:.4f}   law {truth:.4f}   {(value - truth) / error:+.1f} standard errors"
        )
    print()
    subprocess.run([sys.executable, HERE / "hierarchy.py", "--out", out], check=True)
    print(draws)


if __name__ == "__main__":
    main()
