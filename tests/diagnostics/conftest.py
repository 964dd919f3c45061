import pytest

from hierattn.diagnostics import reference, testing
from hierattn.diagnostics.comparison import tails


@pytest.fixture(autouse=True)
def small_pools(monkeypatch, request):
    """Fewer simulated networks for an observed one: verdicts by full pools are in analysis/claims/diagnose.py."""
    monkeypatch.setattr(reference, "POOL", 2**11)
    monkeypatch.setattr(reference, "MANY", 8)
    monkeypatch.setattr(reference, "GIVEN", 2**14)
    monkeypatch.setattr(testing, "SHUFFLED", 2**17)
    if request.path.name in ("test_judgement.py", "test_pairing.py"):  # which do not look at intervals of tails
        monkeypatch.setattr(tails, "RESAMPLED", 50)
