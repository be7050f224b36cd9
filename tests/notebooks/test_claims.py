"""The articles' claims: each has a verdict, evidence, and a chapter that exists."""

from collections import Counter

from macgpu import claims
from macgpu.publish.claims_page import ORIGINALS, claims_page
from tests.conftest import ROOT


def where(claim):
    """Which row of the table a failure is about."""
    return f"data/claims.csv, article {claim.article}, {claim.claim!r}"


def test_every_claim_has_a_verdict_and_leads_to_a_chapter():
    chapters = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    listed = claims.claims()
    for claim in listed:
        assert claim.article in claims.ARTICLES, (
            f"{where(claim)}: add the article to claims.ARTICLES"
        )
        assert claim.verdict in claims.VERDICTS, (
            f"{where(claim)}: the verdict {claim.verdict!r} is none of {', '.join(claims.VERDICTS)}"
        )
        assert claim.chapter in chapters, (
            f"{where(claim)}: there is no notebook {claim.chapter!r}; name the one that shows it"
        )
        assert claim.claim and claim.evidence, f"{where(claim)}: write the claim and its evidence"
    missing = set(claims.ARTICLES) - {claim.article for claim in listed}
    assert not missing, f"data/claims.csv has no claim of article {', '.join(sorted(missing))}"
    counts = Counter((claim.article, claim.claim) for claim in listed)
    twice = [where(claim) for claim in listed if counts[claim.article, claim.claim] > 1]
    assert not twice, "there twice, so take one out:\n" + "\n".join(twice)


def test_the_page_holds_every_claim_with_its_verdict_and_a_link():
    listed = claims.claims()
    page = claims_page(listed)
    for claim in listed:
        entry = f"{claim.claim}\n: **{claim.verdict.capitalize()}.** "
        assert entry in page, (
            f"{where(claim)}: the page of claims does not show it with its verdict"
        )
        link = f"](../notebooks/{claim.chapter}.ipynb)\n"
        assert link in page, f"{where(claim)}: the page of claims does not lead to its chapter"
    assert "[pytorch#140787](https://github.com/pytorch/pytorch/issues/140787)" in page
    wrong = sum(claim.verdict == "wrong" and claim.article == "1" for claim in listed)
    assert f"| wrong | {wrong} |" in page, "the page of claims counts its verdicts wrongly"


def test_the_articles_own_titles_are_marked_as_chinese_and_stand_below_a_translation():
    page = claims_page(claims.claims())
    for number, title in claims.ARTICLES.items():
        below = page.partition(f"## Article {number}: {title}\n")[2]
        assert below.startswith(
            f'\nIts own title, in Chinese: <span lang="zh">{ORIGINALS[number]}</span>.\n'
        )
