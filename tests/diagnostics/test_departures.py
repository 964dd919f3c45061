"""The registry of departures: all that tables, records, words and powers say is asked from it."""

import jax
import numpy as np
import pytest

from hierattn import Architecture, Law, Observations
from hierattn.diagnostics import examination, explanation, power, record, words
from hierattn.diagnostics.departures import protocol, registry
from hierattn.diagnostics.diagnosis import diagnose
from tests.diagnostics import drawn

CODES = {"scale", "score_scale", "kernel", "pairing", "spread", "coordinates", "normalised", "gaussian", "no_shared_scores"}


def test_every_departure_has_words_and_a_remedy():
    assert set(registry.CODES) == CODES
    assert set(registry.TESTED) == {"scale", "score_scale", "kernel", "pairing", "spread", "within", "normalised"}
    assert set(registry.RIVALS) == {"gaussian", "own", "score_scale", "pairing"}
    for departure in registry.DEPARTURES:
        assert min(len(departure.looked_at), len(departure.points_to), len(departure.remedy)) > 10
        assert departure.test or departure.rival


def test_explanations_name_codes_of_the_registry():
    """What explanation.py imports from departures/ is what there is."""
    modules = {name for name, value in vars(explanation).items() if getattr(value, "DEPARTURE", None) in registry.DEPARTURES}
    assert modules == CODES


def test_a_new_departure_needs_its_own_file_and_the_registry_only(monkeypatch):
    """Planted: outputs whose mean square is above what it should be, and a rival of twice the size."""
    new = protocol.Departure(
        "loud",
        "how loud the outputs are",
        "the volume",
        "turn it down",
        test=protocol.Test("loudness", lambda held: held.off.size, two_sided=False),
        rival=protocol.Rival("loud", "outputs twice as large", lambda simulated, rng: 2 * simulated.y),
    )
    for module in (registry, words, record, power, examination, examination.testing, examination.reference):
        for name, known in (("TESTED", {"loudness": new}), ("RIVALS", {"loud": new.rival}), ("CODES", {"loud": new})):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name) | known)
        if hasattr(module, "TESTS"):
            monkeypatch.setattr(module, "TESTS", (*module.TESTS, new.test))
    found = diagnose(Observations(drawn.law(0, 30, 8), np.eye(4), heads=1), score_scale=1.6, value_scale=1.0)
    assert found.record["p_loudness"] == found.examination.corrected["loudness"] > 0.01
    assert found.powers["loud"] == found.record["power_loud"] > 0.99
    assert "how loud the outputs are" in str(found)
    assert "outputs twice as large (1.00)" in " ".join(str(found).split())


def test_a_wrong_gain_of_normed_queries_and_keys_is_a_wrong_score_scale():
    """The law with other scores is one with another gain: their weights' scales drop out."""
    layer = Architecture(heads=2, qk_norm="rms", qk_gain=2.0, head_dim=8)
    y = np.asarray(Law(layer, np.eye(4)).sample(jax.random.key(0), 200, 16))
    for gain, verdict, codes in ((2.0, True, []), (1.0, False, ["score_scale"])):
        found = diagnose(Observations(y, np.eye(4), layer=layer.replace(qk_gain=gain)))
        assert (found.consistent is False) == (not verdict)
        assert set(codes) <= set(found.codes)


@pytest.mark.parametrize("code", sorted(CODES | set(words.DOUBTS)))
def test_every_code_says_what_to_do(code):
    judged = type("Judged", (), {"codes": [code, code]})
    assert len(words.next_steps(judged)) == 1
    assert words.next_steps(judged) != [words.SATISFIED]
