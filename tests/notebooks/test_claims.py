"""The articles' claims: each has a verdict, evidence, and a chapter that exists."""

import csv

from tests.conftest import ROOT

VERDICTS = {"true", "outdated", "wrong", "depends"}


def test_every_claim_has_a_verdict_and_leads_to_a_chapter():
    with (ROOT / "data" / "claims.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {row["article"] for row in rows} == {"1", "2"}
    assert {row["verdict"] for row in rows} <= VERDICTS
    assert {row["chapter"] for row in rows} <= chapters
    assert all(row["claim"] and row["evidence"] for row in rows)
    assert len({(row["article"], row["claim"]) for row in rows}) == len(rows)
