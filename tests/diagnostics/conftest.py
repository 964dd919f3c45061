import pytest

from hierattn.diagnostics import reference, testing


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    """Fewer simulated networks for an observed one: verdicts by full pools are in analysis/claims/diagnose.py."""
    monkeypatch.setattr(reference, "POOL", 2**11)
    monkeypatch.setattr(reference, "MANY", 8)
    monkeypatch.setattr(reference, "GIVEN", 2**14)
    monkeypatch.setattr(testing, "SHUFFLED", 2**17)
