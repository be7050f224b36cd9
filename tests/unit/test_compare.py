"""What chapters draw from the records: the right record, the right steps, and no failed one."""

from dataclasses import replace

import pytest
import torch

from macgpu import compare, rivals, runs
from macgpu.measure import records
from macgpu.measure.ceilings import Cell
from macgpu.measure.energy import Energy
from macgpu.measure.flops import Work
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.records import Comparison, Footprint, Label, Result
from macgpu.measure.steps import Options
from macgpu.measure.timing import Ratio, ratio_of_pairs, summarise

PLAIN, TF32 = Options(), Options(tf32=True)


def timing(seconds):
    return summarise([seconds] * 30, 1, 1.0, [], True)


def result(seconds, options=PLAIN, step="float32", **changes):
    made = timing(seconds) if seconds else None
    whole = Result(
        Label("resnet50", 10, options, step), made, None, None, Work(10**9, 1), None, None
    )
    return replace(whole, **changes)


def record(*results, ceilings=(), finished="2026-01-01T00:00:00+00:00"):
    made = records.make(
        torch.device("cpu"), ("models",), "smoke", ceilings=ceilings, results=results
    )
    return replace(made, finished=finished)


def test_the_newest_wanted_record_is_taken(tmp_path, monkeypatch):
    kept = [record(finished=f"2026-01-0{day}T00:00:00+00:00") for day in (2, 3, 1)]
    monkeypatch.setattr(records, "read_all", lambda: iter(kept))
    assert compare.newest(lambda r: True) is kept[1]
    assert compare.newest(lambda r: r.finished < "2026-01-03") is kept[0]
    assert compare.newest(lambda r: False) is None


def test_each_model_comes_from_the_newest_run_that_timed_it(monkeypatch):
    def run(day, *results, suites=("models",)):
        made = record(*results, finished=f"2026-01-0{day}T00:00:00+00:00")
        return replace(made, suites=suites)

    bert = replace(result(0.2), label=replace(result(0.2).label, model="bert-128"))
    both = run(1, result(0.1), bert)
    newer = run(2, result(0.05), replace(bert, timing=None, failure="out of memory"))
    energy_only = run(3, result(0.01), suites=("energy",))
    monkeypatch.setattr(records, "read_all", lambda: iter([newer, energy_only, both]))
    found = compare.newest_of_each(["resnet50", "bert-128", "mlp"], "cpu")
    assert found == {"resnet50": newer, "bert-128": both}
    assert compare.newest_of_each(["resnet50"], "cuda") == {}
    assert compare.captions(found) == f"{newer.caption} {both.caption}"
    assert compare.captions({"resnet50": both, "bert-128": both}) == both.caption


def test_a_run_that_was_cut_off_does_not_hide_the_whole_ladder_before_it(monkeypatch):
    failed = result(None, Options(fused=True), "fused optimizer", failure="out of memory")
    whole = record(result(0.2), result(0.1, TF32, "tf32"), failed)
    cut_off = record(result(0.19), finished="2026-01-02T00:00:00+00:00")
    monkeypatch.setattr(records, "read_all", lambda: iter([whole, cut_off]))
    assert compare.newest_of_each(["resnet50"], "cpu") == {"resnet50": whole}


def test_the_rate_of_a_window_is_set_beside_the_timings():
    # 20 blocks of 5 steps of 10 samples; a step takes 0.1 s, a block in the window 0.55 s.
    energy = Energy(
        "a meter", None, 11.0, 1000, 500.0, 10.0, 0.5, 0.4, tuple(0.55 * i for i in range(21))
    )
    measured = result(0.1, TF32, "tf32", energy=energy)
    faster = record(result(0.2), result(0.05, TF32, "tf32"))
    words = compare.window_words(measured, faster)
    assert "91 samples a second within the window of the energy, 100 timed" in words
    assert "takes 50.0 ms more" in words
    assert "has 200 for the same step: another run, of 2026-01-01 00:00 UTC" in words
    assert "newest ladder" not in compare.window_words(measured, record(result(0.2)))


def test_a_dash_says_whether_the_option_changes_nothing_or_was_not_measured():
    def run(model, *names):
        made = [result(0.1, PLAIN, name) for name in names]
        made = [replace(one, label=replace(one.label, model=model)) for one in made]
        found = record(*made, finished="2026-01-02T03:04:00+00:00")
        return replace(found, device=replace(found.device, type="cuda"))

    whole = run("resnet50", "float32", "tf32", "channels_last")
    assert compare.dash_words({"resnet50": whole}) == ""
    bert = run("bert-128", "float32")
    assert compare.dash_words({"resnet50": whole, "bert-128": bert}) == (
        "bert-128 has no tf32: its row is from the run of 2026-01-02 03:04 UTC, which holds more "
        "of the model's ladder than any newer one, but not this rung. "
        "channels_last changes nothing for bert-128."
    )


def beside(ratio, compiled=None, code="timm"):
    """Another's step in turn with the book's compiled one."""
    other = Label("resnet50", 10, Options(compiled=compiled), "a name", code)
    book = Label("resnet50", 10, Options(compiled="default"), "torch.compile")
    return Comparison(other, book, ratio_of_pairs([ratio] * 60))


def test_other_peoples_steps_come_from_the_newest_run_of_their_model(monkeypatch):
    old = replace(record(), comparisons=(beside(0.9, "default"), beside(2.0)))
    new = record(finished="2026-01-02T00:00:00+00:00")
    new = replace(new, comparisons=(beside(1.25, "reduce-overhead"),))
    elsewhere = replace(new, device=replace(new.device, type="cuda"))
    emptied = replace(record(finished="2026-01-03T00:00:00+00:00"), comparisons=(own_pair(),))
    monkeypatch.setattr(records, "read_all", lambda: iter([new, elsewhere, old, emptied]))
    found = rivals.newest("cpu")
    (row,) = rivals.table(found).to_dict("records")
    assert row == {
        "model": "resnet50",
        "other": "timm, CUDA graphs",
        "the book's": "torch.compile",
        "ratio": 1.25,
        "low": 1.25,
        "high": 1.25,
        "the other is": "slower",
    }
    assert rivals.where(found) == new.caption
    assert rivals.table(rivals.newest("mps")).empty
    assert rivals.words({}, {}, ["resnet50"]) == ""


def own_pair():
    label = Label("resnet18", 64, PLAIN, "cache emptied")
    return Comparison(label, replace(label, step="cache kept"), ratio_of_pairs([1.5] * 30))


def test_what_the_table_of_other_steps_does_not_show_is_said(monkeypatch):
    def theirs(seconds, compiled):
        label = Label("resnet50", 10, Options(compiled=compiled), "a name", "timm")
        return replace(result(seconds), label=label)

    run = record(theirs(0.1, None), theirs(0.2, "default"))
    run = replace(run, comparisons=(beside(1.1), beside(2.2, "default")))
    monkeypatch.setattr(records, "read_all", lambda: iter([run]))
    found = rivals.newest("cpu")
    ladder = record(result(0.1), result(0.05, Options(compiled="default"), "torch.compile"))
    words = rivals.words(found, {"resnet50": ladder}, ["resnet50", "resnet18"])
    assert words == (
        "For resnet50, timm was not run with CUDA graphs, and neither was the book's. "
        "For resnet50, timm is slower with torch.compile than without the compiler. That was "
        "seen, and its cause was not looked for. "
        "No other step was run for resnet18: benchmarks/h200.py, which runs them, names none."
    )
    words = rivals.words(found, {}, ["resnet50"])
    assert "The book's step of resnet50 with torch.compile has no rate" in words
    quick = replace(run, results=(theirs(0.1, None), theirs(0.05, "default")))
    graphs = replace(quick, comparisons=(*run.comparisons, beside(1.0, "reduce-overhead")))
    monkeypatch.setattr(records, "read_all", lambda: iter([graphs]))
    assert rivals.words(rivals.newest("cpu"), {"resnet50": ladder}, ["resnet50"]) == ""


def test_the_same_step_in_several_runs_shows_how_far_they_are_apart(monkeypatch):
    def day(number, *results, **changes):
        return replace(record(*results, finished=f"2026-01-0{number}T00:00:00+00:00"), **changes)

    noisy = result(0.05, TF32, "tf32")
    noisy = replace(noisy, timing=replace(noisy.timing, flags=("noisy: it was",)))
    plain = result(0.1), result(0.1, TF32, "tf32")
    first = day(1, *plain, result(0.1, Options(fused=True), "fused optimizer"))
    second = day(2, result(0.1), noisy)
    third = day(3, result(0.08, step="precision: float32"))
    other_card = day(4, *plain, device=replace(first.device, name="another"))
    other_torch = day(5, *plain, software={"torch": "1.0"})
    kept = [first, second, third, other_card, other_torch]
    monkeypatch.setattr(records, "read_all", lambda: iter(kept))
    steps = runs.repeated(first, ["resnet50"])
    assert [step.spread for step in steps] == pytest.approx([1.0, 0.25])
    assert [str(step) for step in steps] == [
        "resnet50, tf32, 100 to 200 (2 runs)",
        "resnet50, float32, 100 to 125 (3 runs)",
    ]
    words = runs.spread_words(steps, 0.5)
    assert "Of 2 steps" in words and "62.5\u00a0% faster than the slowest in the median" in words
    assert "More than 50\u00a0% apart: 1 of them; with a flag" in words
    assert "in one of their runs: all of these." in words
    assert "in one of their runs: 1 of these." in runs.spread_words(steps, 0.1)
    assert "apart" not in runs.spread_words(steps, 2.0)
    assert runs.repeated(first, ["mlp"]) == []
    assert "more than one run" in runs.spread_words([], 0.5)


def test_no_record_gives_empty_tables():
    assert compare.rates({}).empty
    assert compare.gains({}).empty
    assert compare.gain_table(compare.gains({})).empty
    assert compare.energies(None) == []
    assert compare.energy_table([]).empty
    assert compare.energy_shown([]).empty


def test_rates_are_of_our_own_steps_and_a_failure_keeps_its_words():
    other = result(0.001)
    other = replace(other, label=replace(other.label, code="timm"))
    kept = record(other, result(0.1), result(None, TF32, "tf32", failure="out of memory"))
    table = compare.rates({"resnet50": kept, "mlp": kept})
    assert table.loc["resnet50, batch 10"].to_dict() == {"float32": "100", "tf32": "out of memory"}
    assert len(table) == 1, "a model without results has no row"


def test_a_gain_is_over_the_last_step_that_was_timed():
    kept = record(
        result(0.2),
        result(None, TF32, "tf32", failure="out of memory"),
        result(0.1, Options(fused=True), "fused optimizer"),
        result(0.1, Options(fused=True, compiled="default"), "torch.compile"),
    )
    gained = compare.gains({"resnet50": kept})
    assert list(gained["step"]) == ["fused optimizer", "torch.compile"]
    assert gained["gain"][0] == pytest.approx(2.0)
    assert gained["gain"].isna()[1], "equal times are no gain"
    assert list(compare.gain_table(gained).loc["resnet50"]) == ["×\u00a02.00", "none"]


def test_utilisation_is_against_the_peak_of_the_steps_own_type():
    cells = [
        Cell("matmul", dtype, 1, flops, 0, timing(1.0))
        for dtype, flops in (("float32", 40 * 10**9), ("tf32", 80 * 10**9))
    ]
    kept = record(ceilings=tuple(cells))
    # 1e9 operations in 0.1 s.
    assert compare.utilisation(result(0.1), kept) == pytest.approx(10 / 40)
    assert compare.utilisation(result(0.1, TF32), kept) == pytest.approx(10 / 80)
    assert compare.utilisation(result(0.1, Options(autocast="bfloat16")), kept) is None
    assert compare.utilisation(result(None), kept) is None


def test_only_measured_energy_is_shown():
    energy = Energy("meter", None, 10.0, 1000, 500.0, 20.0, 0.5, 0.3)
    fast = replace(energy, samples=12_345_678)
    assert compare.energy_shown([result(0.1, energy=fast)]).values.tolist() == [
        ["float32", 10, "1,234,567.8", "20.0", "50.0", "0.500", "0.300"]
    ]
    silent = Energy(None, "no meter")
    kept = record(result(0.1), result(0.1, energy=energy), result(None, energy=silent))
    (found,) = compare.energies(kept)
    assert found.energy == energy
    (row,) = compare.energy_table([found]).to_dict("records")
    assert (row["samples/s"], row["mean (W)"], row["idle (W)"]) == (100, 50, 20)


def test_data_types_come_from_their_own_suite_and_are_no_rungs():
    half, tuned = Options(autocast="float16"), Options(autocast="bfloat16", fused=True)
    ladder = result(0.4), result(0.2, TF32, "tf32"), result(0.1, tuned, "fused optimizer")
    suite = result(0.5, step="precision: float32"), result(0.3, half, "precision: float16")
    both = record(*ladder, *suite)
    assert compare.precisions(record(*ladder), "resnet50") == {
        "float32": ladder[0],
        "tf32": ladder[1],
    }
    assert compare.precisions(both, "resnet50") == {"float32": suite[0], "float16": suite[1]}
    assert compare.steps(both, "resnet50") == list(ladder)
    assert compare.precisions(None, "resnet50") == {}


def footprint_record():
    def point(batch, checkpointed, peak, rate):
        return Footprint("resnet50", batch, "bfloat16", checkpointed, 100, peak, 300, rate)

    failed = Footprint("resnet50", 512, None, False, 10**12, failure="out of memory")
    points = (point(32, False, 125, 50.0), point(64, False, 80, 100.0), point(64, True, 110, 75.0))
    label = Label("resnet18", 64, PLAIN, "cache emptied")
    emptied = Comparison(label, replace(label, step="cache kept"), ratio_of_pairs([1.5] * 30))
    return records.make(
        torch.device("cpu"),
        ("memory",),
        "smoke",
        comparisons=(emptied,),
        footprints=(*points, failed),
    )


def test_footprints_of_several_runs_of_one_device_are_one_set(monkeypatch):
    first = replace(footprint_record(), finished="2026-01-01T00:00:00+00:00")
    again = replace(first.footprints[0], peak_bytes=999)
    other = Footprint("vit-b-16", 8, None, False, 100, 101, 300, 5.0)
    second = replace(
        first, finished="2026-01-02T00:00:00+00:00", footprints=(again, other), comparisons=()
    )
    spoilt = replace(first, footprints=(replace(other, batch_size=9),))
    elsewhere = replace(spoilt, software={**first.software, "torch": "1.0"})
    another = replace(spoilt, device=replace(first.device, name="another card"))
    kept = [second, elsewhere, another, first]
    monkeypatch.setattr(records, "read_all", lambda: iter(kept))
    found = compare.newest_footprints("cpu")
    assert found.caption == second.caption
    assert set(found.footprints) == {*first.footprints[1:], again, other}
    assert found.comparisons == first.comparisons
    assert compare.newest_footprints("cuda") is None


def test_predictions_are_counted_against_the_tolerance():
    # 100 is predicted of each: off by 20, 25 and 9 %.
    words = compare.prediction_words(footprint_record(), 0.15)
    assert "3 steps" in words and "for 1 of them" in words
    assert "error was 25.0\u00a0%: resnet50, bfloat16, at batch 64, 0.00\u00a0GiB" in words
    assert "further off are of resnet50 (bfloat16)" in words
    assert "for all of them" in compare.prediction_words(footprint_record(), 0.3)
    assert "no record yet" in compare.prediction_words(None, 0.15)


def test_models_and_ways_that_were_not_measured_are_named():
    words = compare.prediction_words(footprint_record(), 0.15)
    assert "Not measured there yet: vit-b-16, resnet18, bert-128, bert-512." in words
    assert "With checkpointing" not in words
    kept = footprint_record()
    plain = tuple(point for point in kept.footprints if not point.checkpointed)
    words = compare.prediction_words(replace(kept, footprints=plain), 0.15)
    assert "With checkpointing, not yet: resnet50." in words


def test_the_trade_of_checkpointing_is_told_of_the_batch_that_ran_both_ways():
    kept = footprint_record()
    (row,) = compare.checkpointing_table(kept).to_dict("records")
    assert (row["model"], row["type"], row["batch"]) == ("resnet50", "bfloat16", 64)
    # At batch 64: 110 of 80 bytes, 75 of 100 samples a second.
    assert (row["memory"], row["rate"], row["best rate"]) == (1.375, 0.75, 0.75)
    words = compare.checkpointing_words(kept)
    assert "trains at 75\u00a0% of the rate" in words and "does not make up" in words
    assert compare.checkpointing_words(None) == ""


def test_checkpointing_pays_where_its_larger_batch_is_faster_than_any_without():
    kept = footprint_record()
    larger = replace(kept.footprints[2], batch_size=256, samples_per_s=101.0)
    kept = replace(kept, footprints=(*kept.footprints, larger))
    (row,) = compare.checkpointing_table(kept).to_dict("records")
    assert (row["batch"], row["rate"], row["best rate"]) == (64, 0.75, 1.01)
    assert "the faster one for resnet50 in bfloat16." in compare.checkpointing_words(kept)


def test_the_cost_of_emptying_the_cache_is_told_where_it_was_measured():
    assert "batch 64 takes 1.50 times as long" in compare.emptying_words(footprint_record())
    assert compare.emptying_words(None) == compare.emptying_words(record()) == ""


def test_of_several_runs_with_an_emptied_cache_the_range_is_told(monkeypatch):
    def run(day, ratio, spread, label=None):
        kept = footprint_record()
        (pair,) = kept.comparisons
        ratio = Ratio((ratio,), ratio, ratio - spread, ratio + spread)
        pair = replace(pair, a=label or pair.a, ratio=ratio)
        return replace(kept, finished=f"2026-01-0{day}T00:00:00+00:00", comparisons=(pair,))

    larger = replace(footprint_record().comparisons[0].a, batch_size=128)
    kept = [run(2, 1.14, 0.02), run(1, 1.22, 0.04), run(3, 1.5, 0.1, larger)]
    monkeypatch.setattr(records, "read_all", lambda: iter(kept))
    assert compare.emptying_words(compare.newest_footprints("cpu")) == (
        "On the card in the record, resnet18 at batch 64 takes 1.14 to 1.22 times as long "
        "(in 2 runs, intervals from 1.12 to 1.26). "
        "On the card in the record, resnet18 at batch 128 takes 1.50 times as long (1.40 to 1.60)."
    )


def test_of_each_way_the_largest_batch_that_ran_is_shown_and_the_one_that_did_not():
    kept = footprint_record()
    too_large = Footprint("resnet50", 128, "bfloat16", True, 2**40, failure="out of memory")
    kept = replace(kept, footprints=(too_large, *kept.footprints))
    assert compare.footprint_table(kept).values.tolist() == [
        [
            *("resnet50", "bfloat16, checkpointed", 64),
            *("0.0\u00a0GiB", "0.0\u00a0GiB", "0.0\u00a0GiB", "75", "128: out of memory"),
        ],
        [
            *("resnet50", "bfloat16", 64),
            *("0.0\u00a0GiB", "0.0\u00a0GiB", "0.0\u00a0GiB", "100", ""),
        ],
        ["resnet50", "float32", 512, "931.3\u00a0GiB", "–", "–", "out of memory", ""],
    ]
    assert len(compare.footprints(kept)) == 3


def test_a_job_has_a_row_for_each_variant_and_for_each_part_after_training():
    runs = (
        SeedRun(0, (0.5, 0.94), (9.0, 2.0), {"flip at test": 0.93}),
        SeedRun(1, (0.5, 0.96), (9.0, 2.0), {"flip at test": 0.94}),
    )
    words = ("images", "fashion-mnist", "test accuracy")
    whole = Job(*words, "recipe", "2 epochs", 60_000, Options(), runs)
    less = replace(whole, variant="without label smoothing", runs=(replace(runs[0], without={}),))
    other = replace(whole, name="text")
    record = records.make(torch.device("cpu"), ("images",), "smoke", jobs=(whole, less, other))
    table = compare.job_table(record, "images")
    assert list(table.index) == ["recipe", "without label smoothing", "without flip at test"]
    assert table["mean"].tolist() == pytest.approx([95.0, 94.0, 93.5])
    assert table["seeds"].tolist() == [2, 1, 2]
    assert table.loc["recipe", "lowest"] == pytest.approx(94)
    assert table.loc["recipe", "seconds an epoch"] == "2.00"
