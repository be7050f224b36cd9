"""Reported figures carry their source, and their rates follow from what the source printed."""

import shutil

import pytest

from macgpu import reported


def test_every_row_names_source_software_and_year():
    rows = [*reported.training(), *reported.power(), *reported.wall()]
    assert len(rows) > 20
    for row in rows:
        assert row.source.url.startswith("https://")
        assert row.source.software and row.hardware


def test_a_rate_and_a_step_follow_from_the_reported_time():
    # 100 steps of 16 sequences in 1 minute 3 seconds, as the source's table has it.
    case = "BERT-base fp32", "128 tokens", 16
    rows = reported.training()
    bert = reported.find(rows, "lucadiliello", "M1 Max (32 cores)", *case)
    assert bert.step_s == pytest.approx(0.63)
    assert bert.samples_per_s == pytest.approx(1600 / 63)


def test_a_row_that_is_not_there_is_not_guessed():
    with pytest.raises(LookupError, match="0 rows"):
        reported.find(reported.training(), "lucadiliello", "M9", "BERT", "128 tokens", 16)


def test_a_table_shows_the_source_of_every_row():
    table = reported.table(reported.training())
    assert {"software", "year", "reported by"} <= set(table.columns)
    assert not table.isna().any().any()


def test_joules_per_sample_are_watts_over_samples_per_second():
    (row,) = (r for r in reported.power() if r.hardware == "M1 Pro (16 cores)")
    assert row.joules_per_sample == pytest.approx(32.80 / 72.8)


def test_the_article_keeps_its_own_units():
    article = reported.article()
    assert article["BERT-base", "M1 Ultra", "s/step"] == 45.2
    with pytest.raises(KeyError):
        article["BERT-base", "M1 Ultra", "s/epoch"]


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(reported.FOLDER, tmp_path / "reported")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("nobody,BERT,128 tokens,16,M1,Mac GPU,63,1600", "source: 'nobody' is not listed"),
        ("rasbt,BERT,128 tokens,16,,Mac GPU,63,1600", "hardware: "),
        ("rasbt,BERT,128 tokens,16,M1,Mac GPU,,1600", "seconds: "),
        ("rasbt,BERT,128 tokens,16,M1,Mac GPU,0,1600", "seconds: "),
        ("rasbt,BERT,128 tokens,16,M1,Mac GPU,nan,1600", "seconds: "),
        ("rasbt,BERT,128 tokens,16,M1,Mac GPU,63", "samples: "),
        ("rasbt,BERT,128 tokens,16,M1,a Mac,63,1600", "kind: "),
    ],
)
def test_a_row_that_lacks_something_is_refused_with_its_line(folder, row, reason):
    path = folder / "training.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, row]) + "\n")
    with pytest.raises(reported.ReportedError) as refused:
        reported.training(folder)
    assert str(refused.value).startswith(f"training.csv, line {len(lines) + 1}: {reason}")


def test_a_source_without_an_address_is_refused(folder):
    path = folder / "sources.csv"
    path.write_text(path.read_text().replace("https://support.apple.com/102027", ""))
    with pytest.raises(reported.ReportedError, match="source.url"):
        reported.wall(folder)
