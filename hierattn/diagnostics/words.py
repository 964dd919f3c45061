"""What a verdict means, what it lets one do, and what to do next: the same plain words for terminal, notebook and page."""

from textwrap import fill
from typing import Any, NamedTuple

from hierattn.diagnostics import testing
from hierattn.diagnostics.departures.registry import CODES, RIVALS, TESTED
from hierattn.diagnostics.judgement import Judgement

MEANINGS = {
    True: "The outputs look like draws of the law, and these networks would have shown it if they were not: for these inputs, "
    "the law may stand in for the layer at initialisation, with its variances, tails and correlations.",
    False: "The outputs do not follow the law as it was described: do not rely on its predictions before the cause is found.",
    None: "Neither yes nor no: no test speaks against the law, but that is not enough to rely on it.",
}
NO_LAW = "Neither yes nor no: nothing was tested."
DOUBTS = {  # codes of reasons that are no departures
    "low_power": "observe more networks (more coordinates help less); the report shows how many would be enough",
    "not_converged": "fit again with more draws or another method, or diagnose the outputs without the fit",
    "unidentified": "say more of the layer: its kernel or inputs, or its scales (--score-scale, --value-scale)",
}
SATISFIED = (
    "use the law in place of the network for this layer and these inputs; hierattn report writes all of this as one page"
)
SCALES_FROM = {
    "given": "given, not estimated",
    "moments": "estimated from these outputs",
    "fit": "posterior medians of the fit",
}
WIDTH = 100  # letters of a line on a terminal
SAFE = 0.01  # relative error of the 99.9 % quantile up to which a Gaussian is called good enough


class Row(NamedTuple):
    """A test, as tables show it: p_value as it is, and corrected for the number of tests."""

    name: str
    looked_at: str
    points_to: str
    p_value: float
    corrected: float
    refused: bool

    @property
    def answer(self) -> str:
        """In a word or two."""
        return "differs from the law" if self.refused else "no difference seen"


def rows(judged: Judgement) -> list[Row]:
    """The tests, in the order of the registry."""
    found = judged.examination
    if found is None:
        return []
    present = {name: departure for name, departure in TESTED.items() if name in found.corrected}
    return [
        Row(name, each.looked_at, each.points_to, found.p_values[name], found.corrected[name], name in found.refused)
        for name, each in present.items()
    ]


def meaning(judged: Judgement) -> str:
    """What the verdict lets one do."""
    return MEANINGS[judged.consistent] if judged.examination else NO_LAW


def next_steps(judged: Judgement) -> list[str]:
    """What to do, for each kind of reason once."""
    known = {code: departure.remedy for code, departure in CODES.items()} | DOUBTS
    return [known[code] for code in dict.fromkeys(judged.codes) if code in known] or [SATISFIED]


def power(judged: Judgement) -> str:
    """What these networks would have shown, and how surely; empty where nothing was tested."""
    if not judged.powers:
        return ""
    seen = ", ".join(f"{RIVALS[name].words} ({p:.2f})" for name, p in judged.powers.items())
    return f"These {len(judged.outputs)} networks would have shown, with probability: {seen}."


def gaussian(record: dict[str, Any]) -> str:
    """Is a Gaussian good enough? With the numbers behind it; empty where there is no law."""
    if record.get("gaussian_quantile_error_999") is None:
        return ""
    error, kl, needed = (record[f"gaussian_{name}"] for name in ("quantile_error_999", "kl", "networks_needed"))
    verdict = "Yes, for most uses" if abs(error) < SAFE else "For variances only; its tails are wrong"
    each = f"{record['coordinates_used']} coordinates"
    told = f"no number of networks of {each} tells" if needed is None else f"{needed} networks of {each} tell"
    side = "too small" if error < 0 else "too large"
    return (
        f"{verdict}: for token {record['gaussian_token']}, the Gaussian of equal variance has a 99.9 % quantile of |y| that is "
        f"{100 * abs(error):.2g} % {side}. Its KL divergence is {kl:.2g} nats for each network, and {told} it from the law."
    )


def short(judged: Judgement) -> str:
    """A few lines."""
    refused = [row.looked_at for row in rows(judged) if row.refused]
    lines = [judged.verdict, *(f"  {each['message']}" for each in judged.reasons), f"  {meaning(judged)}"]
    lines += [f"  {len(refused)} of {len(rows(judged))} tests refuse the law: {'; '.join(refused)}"] if refused else []
    return "\n".join([*lines, *(f"  next: {step}" for step in next_steps(judged))])


def text(judged: Judgement, record: dict[str, Any] | None = None) -> str:
    """Verdict, reasons, meaning, tests, power, what to do next; from the record also whether a Gaussian would do."""
    parts = ["\n".join([judged.verdict, *(f"  {each['message']}" for each in judged.reasons)]), fill(meaning(judged), WIDTH)]
    if table := rows(judged):
        wide = max(len(row.looked_at) for row in table)
        lines = [f"{'looked at':{wide}}  {'p-value':7}  finding"]
        lines += [f"{row.looked_at:{wide}}  {row.corrected:<7.2g}  {row.answer}" for row in table]
        level = f"P-values are corrected for the number of tests; below {testing.LEVEL:g} the law is refused."
        parts.append("\n".join([*lines, level]))
    parts.append(fill(power(judged), WIDTH))
    if record is not None and (told := gaussian(record)):
        parts.append(fill(f"Is a Gaussian good enough? {told}", WIDTH))
    parts += [fill(f"Next: {step}", WIDTH) for step in next_steps(judged)]
    return "\n\n".join(part for part in parts if part)
