"""The articles' claims: each has a verdict, evidence, and a chapter that exists."""

from macgpu import claims
from macgpu.publish.claims_page import claims_page
from tests.conftest import ROOT


def test_every_claim_has_a_verdict_and_leads_to_a_chapter():
    listed = claims.claims()
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert {claim.article for claim in listed} == set(claims.ARTICLES)
    assert {claim.verdict for claim in listed} <= set(claims.VERDICTS)
    assert {claim.chapter for claim in listed} <= chapters
    assert all(claim.claim and claim.evidence for claim in listed)
    assert len({(claim.article, claim.claim) for claim in listed}) == len(listed)


def test_the_page_holds_every_claim_with_its_verdict_and_a_link():
    listed = claims.claims()
    page = claims_page(listed)
    for claim in listed:
        assert f"{claim.claim}\n: **{claim.verdict.capitalize()}.** " in page
        assert f"](../notebooks/{claim.chapter}.ipynb)\n" in page
    assert "[pytorch#140787](https://github.com/pytorch/pytorch/issues/140787)" in page
    wrong = sum(claim.verdict == "wrong" and claim.article == "1" for claim in listed)
    assert f"| wrong | {wrong} |" in page
