"""What is asked of a description before it becomes one: kinds, shapes, ranges, and fields that do not contradict each other."""

from numbers import Integral
from typing import Any

import numpy as np

from hierattn.base.errors import as_array, check_choice, unusable
from hierattn.base.tracing import traced
from hierattn.layer import masks
from hierattn.layer.scores import SCORE_FUNCTIONS

SCALINGS = ("sqrt", "linear")
QK_NORMS = ("rms", "layer", "rms_all")
COUNTS = ("heads", "head_dim", "key_value_heads", "window", "chunk")
SCALE_NAMES = ("sigma_q", "sigma_k", "sigma_v", "sigma_o")
PER_HEAD = (*SCALE_NAMES, "qk_gain", "sink", "sink_scale")  # numbers, or one for each head


def checked(layer: Any) -> dict[str, Any]:
    """The fields of an `Architecture` that become others, once all are found to be usable."""
    for name in COUNTS:
        _check_count(name, getattr(layer, name), optional=name != "heads")
    found = {name: checked_scale(name, getattr(layer, name), layer.heads) for name in (*SCALE_NAMES, "qk_gain")}
    check_choice("scaling", layer.scaling, SCALINGS)
    check_choice("score_function", layer.score_function, tuple(SCORE_FUNCTIONS))
    found |= {
        "mask": masks.checked(layer.mask),
        "bias": _checked_bias(layer.bias, layer.heads),
        "rotary": _checked_rotary(layer.rotary, layer.head_dim),
        "qk_eps": checked_number("qk_eps", layer.qk_eps, 0.0),
        "cap": None if layer.cap is None else checked_number("cap", layer.cap, 1e-30),
        "sink": None if layer.sink is None else _checked_logit(layer.sink, layer.heads),
        "sink_scale": None if layer.sink_scale is None else checked_scale("sink_scale", layer.sink_scale, layer.heads),
    }
    _check_groups(layer, found)
    _check_norm(layer, found)
    _check_sink(layer, found)
    return found


def _check_norm(layer: Any, found: dict[str, Any]) -> None:
    """What is said of normed queries and keys, and by whom."""
    if layer.qk_norm is None:
        for name, usual in (("qk_gain", 1.0), ("qk_eps", 0.0)):
            if not traced(found[name]) and np.any(np.not_equal(found[name], usual)):
                raise unusable(name, f"{usual:g} where queries and keys are not normed", found[name], "say qk_norm='rms'")
        return
    check_choice("qk_norm", layer.qk_norm, QK_NORMS)
    if layer.qk_norm == "layer" and layer.head_dim == 1:
        raise unusable("qk_norm", "'rms' for heads of one dimension", "'layer', which leaves nothing of it")
    for name in ("sigma_q", "sigma_k"):
        scale = found[name]
        if not traced(scale) and not np.all(np.asarray(scale) > 0):
            raise unusable(name, "a positive number where queries and keys are normed", scale)
        if np.ndim(scale) and (layer.qk_norm == "rms_all" or traced(found["qk_eps"]) or found["qk_eps"]):
            raise unusable(name, "one number where queries and keys are normed together, or with an eps", "one per head")


def _check_sink(layer: Any, found: dict[str, Any]) -> None:
    """Sinks belong to softmax."""
    if layer.sink is not None and not SCORE_FUNCTIONS[layer.score_function].takes_sink:
        raise unusable("sink", f"None with score_function {layer.score_function!r}", "a number", "sinks belong to softmax")
    if layer.sink_scale is not None:
        if layer.sink is None:
            raise unusable("sink", "the mean of sinks that vary", None, "give sink=0.0")
        if layer.cap is not None:
            raise unusable("cap", "None with sinks that vary between networks", layer.cap, "no law is known for both together")


def checked_number(name: str, value: Any, least: float) -> Any:
    """One number, as large as that at least."""
    if traced(value):
        return value
    number = as_array(name, value)
    if number.shape != () or not least <= number < 1e30:
        raise unusable(name, "one positive number" if least else "one number of at least 0", number.tolist())
    return float(number)


def _checked_logit(value: Any, heads: int) -> Any:
    if traced(value):
        return value
    logit = as_array("sink", value)
    if logit.shape not in ((), (heads,)) or not np.all(np.isfinite(logit)):
        raise unusable("sink", f"a finite number or {heads}, one per head", np.asarray(value).tolist())
    return float(logit) if logit.ndim == 0 else logit


def _check_count(name: str, value: Any, optional: bool) -> None:
    if optional and value is None:
        return
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise unusable(name, "a positive whole number" + (" or None" if optional else ""), repr(value))


def checked_scale(name: str, value: Any, heads: int) -> Any:
    """One number that is not negative, or one for each head."""
    if traced(value):
        return value
    scale = as_array(name, value)
    if scale.shape not in ((), (heads,)):
        raise unusable(name, f"a number or {heads} numbers, one per head", f"shape {scale.shape}")
    if not np.all((scale == 0) | ((scale > 1e-30) & (scale < 1e30))):
        raise unusable(name, "numbers that are 0 or between 1e-30 and 1e30", scale.tolist())
    return float(scale) if scale.ndim == 0 else scale


def _checked_bias(bias: Any, heads: int) -> Any:
    if bias is None or traced(bias):
        return bias
    bias = as_array("bias", bias)
    if bias.ndim not in (2, 3) or (bias.ndim == 3 and bias.shape[0] != heads):
        raise unusable("bias", f"shape (queries, keys) or ({heads}, queries, keys)", bias.shape)
    if not np.all(np.isfinite(bias)):
        raise unusable("bias", "finite numbers", "NaN or infinity", "use mask to forbid a key")
    return bias


def _checked_rotary(rotary: Any, head_dim: int | None) -> Any:
    if rotary is None or traced(rotary):
        return rotary
    rotary = as_array("rotary", rotary)
    if rotary.ndim != 1 or rotary.size == 0 or not np.all(np.isfinite(rotary)):
        raise unusable("rotary", "a vector of finite frequencies", f"shape {rotary.shape}")
    if head_dim is not None and 2 * rotary.size != head_dim:
        remedy = "use frequency 0 for coordinates that are not rotated"
        raise unusable("rotary", f"head_dim / 2 = {head_dim / 2:g} frequencies", rotary.size, remedy)
    return rotary


def _check_groups(layer: Any, found: dict[str, Any]) -> None:
    owners = layer.key_value_heads
    if owners is None:
        return
    if layer.heads % owners:
        raise unusable("key_value_heads", f"a divisor of heads = {layer.heads}", owners)
    for name in ("sigma_k", "sigma_v"):
        scale = found[name]
        if isinstance(scale, np.ndarray) and np.ptp(scale.reshape(owners, -1), axis=1).any():
            raise unusable(name, "one value for all heads that share a matrix", scale.tolist())
