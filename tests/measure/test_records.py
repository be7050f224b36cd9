"""Records: what is written can be read, and everything else is refused with its reason."""

import getpass
import json
import platform
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import pydantic
import pytest
import torch
from typer.testing import CliRunner

from macgpu import compare
from macgpu.cli import app
from macgpu.device import Hardware
from macgpu.machine import Power
from macgpu.measure import problems, records, timing
from macgpu.measure.ceilings import Cell
from macgpu.measure.energy import Energy
from macgpu.measure.flops import Floor, Work
from macgpu.measure.generation import Generation, Look, MadeBy, Quality
from macgpu.measure.jobs import Job, SeedRun
from macgpu.measure.loading import Loading, Pass, ThreeWay
from macgpu.measure.parity import same_curve
from macgpu.measure.records import (
    RESULTS,
    Comparison,
    Footprint,
    Label,
    Record,
    RecordError,
    Result,
)
from macgpu.measure.steps import Options
from tests.machines import LINUX, MAC

TIMING = timing.summarise([0.10, 0.11, 0.12], 10, 0.5, [0.2], warm=True)
LABEL = Label("resnet50", 256, Options(autocast="bfloat16"), "bfloat16 autocast")
RESULT = Result(
    LABEL,
    TIMING,
    None,
    same_curve([2.0], [2.0], "the plain step", 0.1),
    Work(10**12, 10**9),
    Floor(0.005, "compute"),
    7 * 10**9,
    Energy(None, "no energy meter"),
)
PASSES = (Pass(0.2, 0.4, 0.5), Pass(0.4, 0.4, 0.8), Pass(0.3, 0.4, 0.6))
LOADING = Loading(
    "jpeg",
    4,
    256,
    64,
    1500.5,
    "resnet18",
    64,
    Options(),
    ThreeWay(4, 9.5, PASSES, 0.075, 0.1, 0.15),
)
RUNS = (
    SeedRun(0, (0.5, 0.75, 0.90), (9.0, 2.0, 4.0), {"flip at test": 0.89}),
    SeedRun(1, (0.5, 0.85, 0.94), (8.0, 3.0, 3.0)),
)
JOB = Job(
    "images",
    "fashion-mnist",
    "test accuracy",
    "recipe",
    "3 epochs",
    60_000,
    Options(),
    RUNS,
    timing.ratio_of_pairs([0.9, 1.0, 1.1]),
)
LOOKS = (
    Look(100, Quality(8.0, 0.5, 0.1)),
    Look(300, Quality(2.0, 0.7, 0.6)),
    Look(500, Quality(1.0, 0.8, 0.7)),
)
GENERATION = Generation(
    "fashion-mnist",
    "hinge",
    "500 iterations",
    "128 of a ResNet",
    50,
    Options(),
    Quality(0.1, 0.9, 0.9),
    Quality(20.0, 0.2, 0.0),
    (
        MadeBy(0, LOOKS, (9.0, 2.0, 4.0)),
        MadeBy(1, (*LOOKS[:2], Look(500, Quality(3.0, 0.6, 0.5))), (9.0, 4.0, 4.0)),
        MadeBy(2, (*LOOKS[:2], Look(500, Quality(2.5, 0.7, 0.4))), (9.0, 6.0, 6.0)),
    ),
    timing.ratio_of_pairs([0.9, 1.0, 1.1]),
)
RECORD = Record(
    version=1,
    provenance="reader",
    suites=("ceilings", "models"),
    profile="quick",
    finished="2026-11-30T12:00:00+00:00",
    device=Hardware("mps", "Apple M2 Pro GPU", 19, 32 * 2**30),
    machine=MAC,
    power=Power("mains", False),
    software={"torch": "2.14.1"},
    ceilings=(Cell("matmul", "float32", 512, 2 * 512**3, 0, TIMING),),
    results=(RESULT,),
    loading=(LOADING,),
    jobs=(JOB,),
    generations=(GENERATION,),
)


def test_what_is_written_is_read_again(tmp_path):
    path = records.write(RECORD, tmp_path / "results")
    assert records.read(path) == RECORD
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert RECORD.find("resnet50", "bfloat16 autocast") == RESULT
    assert RESULT.samples_per_s == pytest.approx(256 / 0.011)
    assert RESULT.flops_per_s == pytest.approx(1e12 / 0.011)
    assert RESULT.times_floor == pytest.approx(2.2)


def test_a_job_is_summed_up_over_its_seeds():
    assert JOB.mean == pytest.approx(0.92)
    assert JOB.spread == pytest.approx(0.02 * 2**0.5)
    # Each run's first epoch holds what is compiled.
    assert JOB.epoch_s == 3.0
    assert JOB.samples_per_s == 20_000
    assert replace(JOB, runs=RUNS[:1]).spread is None


def test_a_generator_is_summed_up_by_medians_over_its_seeds():
    assert (GENERATION.distance, GENERATION.precision, GENERATION.recall) == (2.5, 0.7, 0.5)
    assert GENERATION.excess == pytest.approx(2.4)
    # Of 400 iterations after the first look, which holds what is compiled: 6, 8 and 12 s.
    assert GENERATION.iteration_s == pytest.approx(0.02)
    assert GENERATION.samples_per_s == pytest.approx(2500)
    assert MadeBy(0, LOOKS[:1], (9.0,)).iteration_s == pytest.approx(0.09)
    assert [run.seconds_to(0.8) for run in RUNS] == [15.0, 11.0]
    assert [run.seconds_to(0.92) for run in RUNS] == [None, 14.0]


def test_the_caption_names_machine_software_and_date():
    assert RECORD.caption == (
        "Measured on mps, Apple M2 Pro GPU in Apple M2 Pro, 8 performance and 4 efficiency cores, "
        "32 GiB memory, macOS 15.5; torch 2.14.1, profile quick, 2026-11-30."
    )


def test_a_record_of_this_machine_names_nobody(tmp_path):
    record = records.make(torch.device("cpu"), ("ceilings",), "smoke")
    text = records.write(record, tmp_path).read_text()
    words = set(text.replace('"', " ").replace(",", " ").split())
    assert platform.node() not in words
    assert getpass.getuser() not in words


def changed(field, value):
    """The record's JSON with one field set; the field is a path of names and numbers."""
    content = json.loads(records._SCHEMA.dump_json(RECORD))
    target = content
    *path, last = field.split(".")
    for part in path:
        target = target[int(part) if part.isdigit() else part]
    target[int(last) if last.isdigit() else last] = value
    return json.dumps(content)


def timed(blocks):
    """A time of 11 ms from so many blocks, as in the JSON of a record."""
    made = timing.summarise([0.11] * blocks, 10, 0.5, [0.2], warm=True)
    return asdict(made)


def twice(part):
    pair = Comparison(LABEL, replace(LABEL, code="timm"), timing.ratio_of_pairs([1.5] * 30))
    point = Footprint("resnet50", 32, None, False, 2**30, failure="out of memory")
    whole = replace(RECORD, comparisons=(pair,), footprints=(point,))
    content = json.loads(records._SCHEMA.dump_json(whole))
    content[part] *= 2
    return json.dumps(content)


def without(field):
    content = json.loads(records._SCHEMA.dump_json(RECORD))
    del content[field]
    return json.dumps(content)


@pytest.mark.parametrize(
    ("content", "field", "reason"),
    [
        ("", "", "not whole JSON"),
        (changed("profile", "quick")[:-200], "", "cut off"),
        ("[]", "version", "is missing"),
        ('{"name": "something else"}', "version", "is missing"),
        (changed("version", 2), "version", "newer than 1"),
        *(
            (changed("version", version), "version", "should be 1, a whole number")
            for version in ("1", True, 1.0, None)
        ),
        (changed("version", 0), "version", "should be 1"),
        ("\ufeff" + changed("profile", "quick"), "not whole JSON", "BOM"),
        (changed("device.name", "\ud800"), "invalid JSON", "hex escape"),
        (without("provenance"), "provenance", "required"),
        (without("machine"), "machine", "required"),
        (changed("provenance", "a friend"), "provenance", "should be"),
        # In the very letters of the pattern: a lower-case t would be refused again.
        (changed("finished", "yesterday"), "finished", r"\d\dT\d\d"),
        (
            changed("profile", "quick").replace("{", '{"profile": "full", ', 1),
            "profile",
            "is there twice",
        ),
        (
            changed("device.cores", 19).replace('"cores": 19', '"cores": 38, "cores": 19'),
            "cores",
            "is there twice",
        ),
        (
            changed("results.0.parity.curve", 0.2),
            "results.0.parity.curve",
            "is 0.2, 0.1 is allowed, and it is marked as passed",
        ),
        *(
            (
                changed("ceilings.0.timing", timed(blocks)),
                "profile",
                f"is quick, and a time of {blocks}",
            )
            for blocks in (5, 30)
        ),
        *(
            (changed("finished", f"{moment}+00:00"), "finished", reason)
            for moment, reason in (
                ("2026-99-99T12:00:00", "no date"),
                ("2026-11-31T12:00:00", "no date"),
                ("2026-11-30T24:30:00", "no date"),
                ("2999-11-30T12:00:00", "in the future"),
            )
        ),
        *(
            (changed(field, f"Apple{odd}M2"), field, f"holds {ascii(odd)}")
            for odd in "<>|`[]{}$*&\\\x00\x1b\n\u202e\u2028"
            for field in ("device.name", "software.torch")
        ),
        *(
            (changed(field, "an\x1b[31m <b>odd</b> text"), field, "holds '\\x1b'")
            for field in (
                *("machine.chip", "machine.os_version", "machine.python", "power.source"),
                *("suites.0", "ceilings.0.dtype", "results.0.label.step"),
                *("results.0.label.options.compiled", "results.0.parity.reference"),
                *("results.0.work.source", "results.0.energy.reason", "loading.0.options.compiled"),
            )
        ),
        (changed("device.\x1b[31m", "x"), "device.\\x1b[31m", "unexpected"),
        (
            changed("scaling", {"backend": "gloo", "ranks": 2, "versions": {"<b>": "1"}}),
            "scaling.versions",
            "holds '<'",
        ),
        (changed("device.type", "cpu"), "device.name", "not the machine's processor, Apple M2 Pro"),
        (changed("device.type", "cuda"), "device.type", "no Mac has"),
        # A product of matrices in 11 ms that is 1e18 operations a second, and a copy.
        (changed("ceilings.0.flops", 11 * 10**15), "ceilings.0.flops", "1e+18 a second is more"),
        (changed("ceilings.0.bytes", 11 * 10**15), "ceilings.0.bytes", "1e+18 a second is more"),
        (changed("results.0.work.flops", 11 * 10**15), "results.0.flops", "1e+18 a second is more"),
        (changed("results.0.work.flops", 10**400), "results.0.work.flops", "too large"),
        (changed("machine.memory_bytes", 10**400), "machine.memory_bytes", "too large"),
        *(
            (twice(part), f"{part}.1", "is there twice")
            for part in (
                *("ceilings", "results", "loading", "comparisons", "footprints"),
                *("jobs", "generations"),
            )
        ),
        (changed("results.0.label.model", "what I ran last"), "results.0.label.model", "pattern"),
        (changed("results.0.label.batch_size", 0), "results.0.label.batch_size", "equal to 1"),
        (changed("results.0.timing.median_s", "11 ms"), "results.0.timing.median_s", "number"),
        (changed("results.0.timing.median_s", 1e999), "results.0.timing.median_s", "finite"),
        (
            changed("results.0.timing.median_s", 0.009),
            "results.0.timing.median_s",
            "not the median",
        ),
        (
            changed("results.0.peak_memory_bytes", 0),
            "results.0.peak_memory_bytes",
            "greater than 0",
        ),
        (changed("jobs.0.runs.0.scores.1", 1.5), "jobs.0.runs.0.scores.1", "equal to 1"),
        (changed("jobs.0.runs.1.seconds", [8.0, 3.0]), "jobs.0.runs.1", "a score and a time"),
        (changed("jobs.0.over_plain.median", 1.05), "jobs.0.over_plain.median", "not the median"),
        (changed("jobs.0.over_plain.low", 1.05), "jobs.0.over_plain.median", "outside"),
        (changed("generations.0.runs.0.seconds", [9.0, 2.0]), "generations.0.runs.0", "has a time"),
        (
            changed("generations.0.runs.0.looks.1.iterations", 600),
            "generations.0.runs.0",
            "not in order",
        ),
        (changed("generations.0.real.recall", 1.5), "generations.0.real.recall", "equal to 1"),
        (
            changed("generations.0.over_plain.median", 1.05),
            "generations.0.over_plain.median",
            "not the median",
        ),
        (changed("hostname", "my-mac.local"), "hostname", "unexpected"),
        (changed("machine.hostname", "my-mac.local"), "machine.hostname", "unexpected"),
        (changed("machine.user", "me"), "machine.user", "unexpected"),
        (changed("device.serial_number", "C02X"), "device.serial_number", "unexpected"),
        (changed("power.address", "10.0.0.1"), "power.address", "unexpected"),
        (changed("software.user", "me"), "software.user", "should be"),
        (changed("results.0.timing.by", "me"), "results.0.timing.by", "unexpected"),
        (changed("machine.system", "Linux"), "device.type", "software device"),
        ("[" * 100_000, "", "not whole JSON"),
        (changed("software", {}), "software.torch", "is missing"),
        (changed("device.type", "tpu"), "device.type", "none of"),
        (changed("machine.cores", 0), "machine.cores", "less than 1"),
        (changed("device.memory_bytes", -1), "device.memory_bytes", "less than 1"),
        (changed("machine.memory_bytes", -1), "machine.memory_bytes", "less than 1"),
        (
            changed("results.0.timing.steps_per_block", 0),
            "results.0.timing.steps_per_block",
            "equal to 1",
        ),
        (
            changed("ceilings.0.timing.steps_per_block", 10**400),
            "ceilings.0.timing.steps_per_block",
            "",
        ),
        (
            changed("results.0.timing.block_seconds", []),
            "results.0.timing.block_seconds",
            "at least",
        ),
        (
            changed("results.0.timing.block_seconds.0", -0.1),
            "results.0.timing.block_seconds.0",
            "greater than 0",
        ),
        (changed("results.0.timing.high_s", 1e-9), "results.0.timing.median_s", "outside"),
        (changed("results.0.timing.first_call_s", 0.0), "results.0.timing.first_call_s", "than 0"),
        (changed("results.0.work.flops", -1), "results.0.work.flops", "equal to 0"),
        (changed("results.0.floor.seconds", 0.0), "results.0.floor.seconds", "greater than 0"),
        (
            changed("results.0.label.options.autocast", "int4"),
            "results.0.label.options",
            "should be",
        ),
        (changed("ceilings.0.kind", "speed"), "ceilings.0.kind", "should be"),
        (changed("results.0.failure", "out of memory"), "results.0.failure", "not both"),
        (changed("ceilings.0.timing", None), "ceilings.0.failure", "not both"),
        (changed("loading.0.timing", None), "loading.0.failure", "not both"),
        (changed("loading.0.loader", "a disk"), "loading.0.loader", "should be"),
        (changed("loading.0.workers", -1), "loading.0.workers", "equal to 0"),
        (changed("loading.0.folder", "/home/me"), "loading.0.folder", "unexpected"),
        (changed("loading.0.timing.passes", []), "loading.0.timing.passes", "at least 1"),
        (
            changed("loading.0.timing.passes.1.model", 0.0),
            "loading.0.timing.passes.1.model",
            "greater than 0",
        ),
        *(
            (
                changed(f"loading.0.timing.{part}_s", 0.05),
                f"loading.0.timing.{part}_s",
                "not the median",
            )
            for part in ("loader", "model", "both")
        ),
    ],
)
def test_a_record_is_refused_with_file_field_and_reason(tmp_path, content, field, reason):
    path = tmp_path / "a-record.json"
    path.write_text(content)
    with pytest.raises(RecordError) as raised:
        records.read(path)
    message = str(raised.value)
    assert message.startswith(f"a-record.json: {field}")
    assert reason in message
    assert message.isprintable()


@pytest.mark.parametrize(
    "chip",
    [
        "12th Gen Intel(R) Core(TM) i7-12700K",
        "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz",
        "Intel® Core™2 Duo CPU     E8400  @ 3.00GHz",
        "AMD A10-7850K Radeon R7, 12 Compute Cores 4C+8G",
        "AMD Ryzen AI 9 HX 370 w/ Radeon 890M",
        "QEMU Virtual CPU version 2.5+",
        "海光 Hygon C86 7185",
        "Apple M1 (Virtual)",
    ],
)
def test_the_names_that_real_processors_have_are_taken(tmp_path, chip):
    machine = replace(LINUX, chip=chip)
    record = replace(RECORD, device=Hardware("cpu", chip, 8, 2**33), machine=machine)
    assert records.read(records.write(record, tmp_path)) == record


def test_a_date_is_not_judged_by_a_clock_that_stands_before_the_first_record(tmp_path, monkeypatch):
    path = records.write(RECORD, tmp_path)

    class Behind(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2001, 1, 1, tzinfo=tz)

    monkeypatch.setattr(problems, "datetime", Behind)
    assert records.read(path) == RECORD


def test_a_record_from_before_loaders_were_measured_is_read(tmp_path):
    path = tmp_path / "old.json"
    path.write_text(without("loading"))
    assert records.read(path) == replace(RECORD, loading=())


def test_what_does_not_validate_is_not_written_either(tmp_path):
    software_device = replace(RECORD, machine=LINUX)
    with pytest.raises(RecordError, match="software device"):
        records.write(software_device, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(pydantic.ValidationError):
        replace(RECORD, results=(replace(RESULT, peak_memory_bytes=0),))


def test_every_record_of_the_book_is_valid():
    for path in records.paths(RESULTS):
        records.read(path)


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_check_says_which_record_is_refused_and_fails(tmp_path):
    records.write(RECORD, tmp_path)
    good = run("results", "check", "--in", str(tmp_path))
    assert (good.exit_code, good.output) == (0, "1 record, 0 refused\n")
    (tmp_path / "broken.json").write_text(changed("version", 2))
    bad = run("results", "check", "--in", str(tmp_path))
    assert bad.exit_code == 1
    assert "broken.json: version: 2 is newer" in bad.output
    assert "2 records, 1 refused" in bad.output


def test_a_record_whose_file_is_named_after_another_profile_is_refused(tmp_path):
    path = records.write(RECORD, tmp_path)
    for name in ("my-quick-record.json", "full.json", path.name.replace("120000", "1200")):
        assert records.read(path.rename(tmp_path / name)) == RECORD
        path = tmp_path / name
    named = path.rename(tmp_path / "mps-apple-m2-full-2026-11-30-120000.json")
    with pytest.raises(RecordError, match="profile: is quick, and the file's name says full"):
        records.read(named)


def test_an_error_that_was_said_not_to_pass_is_no_contradiction(tmp_path):
    wrong = same_curve([2.0], [1.0], "the plain step", 0.1)
    failed = replace(RESULT, timing=None, failure="wrong: curve off", parity=wrong, energy=None)
    record = replace(RECORD, results=(failed,))
    assert records.read(records.write(record, tmp_path)) == record


def test_check_names_the_files_that_it_does_not_look_at(tmp_path):
    path = records.write(RECORD, tmp_path)
    for name in ("record.json.txt", "A.JSON", ".DS_Store", "odd\x1b.txt"):
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "a-folder").mkdir()
    done = run("results", "check", "--in", str(tmp_path))
    assert done.exit_code == 0
    *lines, last = done.output.splitlines()
    why = "was not looked at, since its name does not end in .json"
    assert lines == [f"{name}: {why}" for name in ("A.JSON", "odd\\x1b.txt", "record.json.txt")]
    assert last == "1 record, 0 refused"


def spoilt(folder):
    """A good record among files that are none; the name of each with the words of its refusal."""
    good = records.write(RECORD, folder)
    (folder / "zz-copy.json").write_bytes(good.read_bytes())
    (folder / "empty.json").touch()
    (folder / "folder.json").mkdir()
    (folder / "cut.json").write_bytes(good.read_bytes()[:300])
    (folder / "newer.json").write_text(changed("version", 2))
    (folder / "a\x1b[31m|name.json").write_text(changed("profile", "full"))
    # What a file manager or an archive of macOS leaves beside a file.
    (folder / "._hidden.json").write_bytes(b"\x00\x05")
    return good, {
        "a\\x1b[31m|name.json": "the file's name holds '\\x1b'",
        "cut.json": "not whole JSON",
        "empty.json": "not whole JSON",
        "folder.json": "cannot be read: Is a directory",
        "newer.json": "version: 2 is newer",
        "zz-copy.json": f"is the same record as {good.name}",
    }


def test_check_names_every_record_that_is_refused(tmp_path):
    _, refused = spoilt(tmp_path)
    done = run("results", "check", "--in", str(tmp_path))
    assert done.exit_code == 1
    *lines, last = done.output.splitlines()
    assert last == "7 records, 6 refused"
    for line, (name, reason) in zip(lines, refused.items(), strict=True):
        assert line.startswith(f"{name}: {reason}"), line


def test_damaged_records_are_named_and_the_good_ones_are_used(tmp_path, capsys):
    good, refused = spoilt(tmp_path)
    records._say_once.cache_clear()
    assert list(records.read_all(tmp_path)) == [RECORD]
    said = capsys.readouterr().err.splitlines()
    for line, (name, reason) in zip(said, refused.items(), strict=True):
        assert line.startswith(f"macgpu: a record is left out: {name}: {reason}"), line
    assert list(records.read_all(tmp_path)) == [RECORD]
    assert capsys.readouterr().err == "", "it was said"

    records._say_once.cache_clear()
    listed = run("results", "list", "--in", str(tmp_path))
    assert listed.exit_code == 0
    assert listed.stdout.startswith(f"{good.name}: Apple M2 Pro GPU")
    assert listed.stdout.count("\n") == 1
    assert listed.stderr.splitlines() == said


def test_list_and_compare_speak_of_the_cases(tmp_path):
    one = records.write(RECORD, tmp_path)
    slow = timing.summarise([0.20, 0.22, 0.24], 10, 0.5, [0.2], warm=True)
    other = replace(RECORD, profile="full", results=(replace(RESULT, timing=slow),))
    two = records.write(other, tmp_path)
    listed = run("results", "list", "--in", str(tmp_path)).output.splitlines()
    assert len(listed) == 2
    assert "Apple M2 Pro GPU, quick, 2026-11-30, reader; 1 ceiling, 1 of 1 case timed" in listed[1]
    compared = run("results", "compare", str(two), str(one))
    (line,) = [line for line in compared.output.splitlines() if line.startswith("resnet50")]
    start = (
        "resnet50, batch 256, bfloat16 (bfloat16 autocast), while its energy was measured: A takes "
    )
    assert line.startswith(start) and line.endswith("slower")
    nothing = records.write(replace(RECORD, profile="smoke", ceilings=(), results=()), tmp_path)
    done = run("results", "compare", str(nothing), str(one))
    assert done.exit_code == 1
    assert "the two records share no ceiling, and no case" in done.output


def test_two_records_of_ceilings_alone_are_compared(tmp_path):
    def record(finished, *cells):
        made = replace(RECORD, finished=finished, ceilings=cells, results=(), loading=())
        return str(records.write(made, tmp_path))

    def cell(kind, size, seconds, **amounts):
        timed = timing.summarise([seconds] * 15, 1, 1.0, [], True)
        amounts = {"flops": 0, "bytes": 0} | amounts
        return Cell(kind, "float32", size, timing=timed, **amounts)

    failed = Cell("matmul", "float32", 8192, 2 * 8192**3, 0, None, "out of memory")
    a = record(
        "2026-11-30T12:00:00+00:00",
        cell("matmul", 512, 0.2, flops=2 * 512**3),
        failed,
        cell("copy", 2**20, 0.1, bytes=2**21),
        cell("launch", 4, 0.3),
    )
    b = record(
        "2026-11-30T13:00:00+00:00",
        cell("matmul", 512, 0.1, flops=2 * 512**3),
        cell("matmul", 8192, 0.1, flops=2 * 8192**3),
        cell("copy", 2**20, 0.1, bytes=2**21),
        cell("launch", 4, 0.1),
    )
    done = run("results", "compare", a, b)
    assert done.exit_code == 0, done.output
    starts = (
        "matmul float32, side 512: A takes 2.000 ",
        "copy float32, 1,048,576 bytes: A takes 1.000 ",
        "launch: A takes 3.000 ",
    )
    for line, start in zip(done.output.splitlines()[2:], starts, strict=True):
        assert line.startswith(start), line


def test_bench_writes_a_record_that_can_be_read(tmp_path):
    done = run("bench", "ceilings", "--profile", "smoke", "--device", "cpu", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    (record,) = records.read_all(tmp_path)
    assert record.device.type == "cpu"
    assert str(records.paths(tmp_path)[0]) in done.output


def test_the_suite_of_data_types_times_each_at_the_same_batch(tmp_path):
    done = run(
        "bench", "precision", "--profile", "smoke", "--device", "cpu", "--out", str(tmp_path)
    )
    assert done.exit_code == 0, done.output
    (record,) = records.read_all(tmp_path)
    assert record.suites == ("precision",)
    found = compare.precisions(record, "cnn")
    assert list(found) == ["float32", "float16", "bfloat16"]
    assert len({result.label.batch_size for result in found.values()}) == 1
    # float16 and bfloat16 were held against the losses of float32 before they were timed.
    assert [result.parity.outputs is None for result in found.values()] == [False, True, True]
    assert {result.peak_memory_bytes for result in found.values()} == {None}, "no counter here"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("speed",), "no suite 'speed'"),
        (("all", "--profile", "fast"), "no profile 'fast'"),
        (("all", "--device", "gpu"), "unknown device 'gpu'"),
    ],
)
def test_bench_refuses_what_it_does_not_know(tmp_path, arguments, reason):
    done = run("bench", *arguments, "--out", str(tmp_path))
    assert done.exit_code == 1
    assert reason in done.output
    assert list(tmp_path.iterdir()) == []


def test_bench_finds_out_first_whether_it_can_write(tmp_path, monkeypatch):
    monkeypatch.setattr("macgpu.measure.suites.run", lambda *_: pytest.fail("measured in vain"))
    (tmp_path / "taken").touch()
    done = run("bench", "ceilings", "--device", "cpu", "--out", str(tmp_path / "taken" / "in"))
    assert done.exit_code == 1
    assert "cannot be written to" in done.output


def test_a_folder_that_is_not_there_is_no_empty_one(tmp_path):
    (tmp_path / "a-file").touch()
    (tmp_path / "empty").mkdir()
    for command in ("check", "list"):
        typo, file = (tmp_path / name for name in ("typo", "a-file"))
        for folder, line in ((typo, f"no folder {typo}"), (file, f"{file} is no folder")):
            done = run("results", command, "--in", str(folder))
            assert (done.exit_code, done.output) == (1, f"macgpu: {line}\n")
    none = run("results", "check", "--in", str(tmp_path / "empty"))
    assert (none.exit_code, none.output) == (0, "0 records, 0 refused\n")
    none = run("results", "list", "--in", str(tmp_path / "empty"))
    assert (none.exit_code, none.output) == (1, f"macgpu: no record in {tmp_path / 'empty'}\n")


def test_two_records_that_cannot_be_compared_are_one_line(tmp_path):
    path = records.write(RECORD, tmp_path)
    copy = tmp_path / "copy.json"
    copy.write_bytes(path.read_bytes())
    same = "A and B are the same record"
    for other, reason in (
        (path, same),
        (copy, same),
        (tmp_path / "none.json", "none.json: cannot be read: No such file or directory"),
        (tmp_path, f"{tmp_path.name}: cannot be read: Is a directory"),
    ):
        for pair in ((path, other), (other, path)):
            done = run("results", "compare", *map(str, pair))
            assert (done.exit_code, done.output) == (1, f"macgpu: {reason}\n")


def test_the_same_times_on_another_day_are_no_difference_in_any_case(tmp_path):
    def timed(seconds):
        return timing.summarise([seconds] * 15, 1, 1.0, [], True)

    rung = replace(RESULT, timing=timed(0.3), energy=None)
    own = replace(rung, label=replace(rung.label, step="precision: bfloat16"), timing=timed(0.1))
    joules = replace(rung, timing=timed(0.2), energy=Energy("a meter", "it stood still"))
    record = replace(RECORD, ceilings=(), results=(rung, own, joules))
    later = replace(record, finished="2026-11-30T13:00:00+00:00")
    paths = [str(records.write(one, tmp_path)) for one in (record, later)]
    lines = run("results", "compare", *paths).output.splitlines()[2:]
    assert len(set(lines)) == 3, "they can be told apart"
    assert all("A takes 1.000" in line for line in lines), lines


def test_a_record_whose_writing_was_cut_off_is_no_record(tmp_path, monkeypatch):
    whole = Path.write_bytes

    def cut_off(path, content):
        whole(path, content[:100])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", cut_off)
    with pytest.raises(OSError, match="no space left"):
        records.write(RECORD, tmp_path)
    assert records.paths(tmp_path) == []
