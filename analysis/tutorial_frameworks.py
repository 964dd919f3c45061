"""Is my Transformer's attention at initialisation what theory says?

    python analysis/tutorial_frameworks.py [--quick] [--out FOLDER]

Three models, one question. (1) Capture: build the model many times, look at one attention layer. (2) Predict: the law that
follows from the layer's weights' variances, heads, mask and inputs, with nothing fitted. (3) Diagnose: do the outputs follow
it, and could these networks have shown it if they did not? (4) Fit: which scales would the outputs choose? (5) Report.
Models of PyTorch need `pip install 'hierattn[frameworks]'`; without it Flax's alone is looked at.
"""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import hierattn as ha
from hierattn.diagnostics.reference import draw

WIDTH, HEADS, TOKENS = 64, 4, 6
X = np.random.default_rng(0).normal(size=(TOKENS, WIDTH)).astype(np.float32)


def flax_layer(seed):
    """Any function of a seed that builds a model will do."""
    from flax import nnx

    return nnx.MultiHeadAttention(num_heads=HEADS, in_features=WIDTH, decode=False, rngs=nnx.Rngs(seed))


def torch_layer():
    """PyTorch's generator is set for you. Values as large as in its own initialiser, scores four times."""
    from torch import nn

    layer = nn.MultiheadAttention(WIDTH, HEADS)
    nn.init.normal_(layer.in_proj_weight[: 2 * WIDTH], std=(2 / WIDTH) ** 0.5)
    return layer


def gpt2():
    """A config is enough; its initialiser, N(0, 0.02^2), makes scores nearly vanish at this width."""
    from transformers import GPT2Config, GPT2Model

    size = {"n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "vocab_size": TOKENS, "n_positions": TOKENS}
    return GPT2Model(GPT2Config(**size, bos_token_id=None, eos_token_id=None))


MODELS = {"a Flax layer": (flax_layer, X)}
if find_spec("torch"):
    causal = {"query": X, "key": X, "value": X, "attn_mask": ~np.tri(TOKENS, dtype=bool)}
    MODELS |= {"a PyTorch layer, causal": (torch_layer, causal), "GPT-2": (gpt2, {"input_ids": np.arange(TOKENS)[None]})}


def look_at(name, model, inputs, networks, out):
    """All five steps for one model; returns the verdict."""
    observed = ha.capture(model, inputs, networks=networks)
    print(f"\n{name}: {observed.description.module}, {networks} networks, {observed.s} tokens")
    scales = observed.description.scales
    origins = {found.origin for key, found in observed.description.variances.items() if not key.startswith("b_")}
    print("  " + ", ".join(f"{key} {value:.4g}" for key, value in scales.items()) + f" ({', '.join(sorted(origins))})")

    diagnosis = ha.diagnose(observed)  # the law is fixed in advance: no option, nothing fitted
    v = np.einsum("mii->mi", observed.S) / observed.coordinates
    predicted = (draw(diagnosis.subject.law, 4096, 16, seed=1) ** 2).mean(axis=2)
    for token in (0, observed.s - 1):
        error = np.hypot(v[:, token].std() / len(v) ** 0.5, predicted[:, token].std() / len(predicted) ** 0.5)
        print(f"  token {token}: variance {v[:, token].mean():.5g}, predicted {predicted[:, token].mean():.5g} +- {error:.2g}")
    print("  " + "\n  ".join(str(diagnosis).splitlines()))

    if observed.kernel.ndim == 2:  # inputs are the same in all networks: moments are enough
        fitted = ha.fit(observed, method="moments", log_likelihood=False)
        for key, row in json.loads(fitted.attrs["parameters"]).items():
            print(f"  fitted {key}: {row['mean']:.4g} +- {row['sd']:.2g}")
    page = out / f"{name.replace(' ', '_').replace(',', '')}.html"
    ha.report(diagnosis, page, force=True)
    print(f"  {page}")
    return diagnosis.verdict


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few networks")
    parser.add_argument("--out", type=Path, default=Path("tutorial"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    verdicts = {
        name: look_at(name, model, inputs, 60 if arguments.quick else 1000, arguments.out)
        for name, (model, inputs) in MODELS.items()
    }
    print("\n" + "; ".join(f"{name}: {verdict}" for name, verdict in verdicts.items()))
    if not find_spec("torch"):
        print("PyTorch is not installed: its layer and GPT-2 were not looked at (pip install 'hierattn[frameworks]')")


if __name__ == "__main__":
    main()
