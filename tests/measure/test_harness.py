"""What the book says of its own harness comes from a file that can be true."""

from datetime import date

from macgpu.measure import harness


def test_every_run_of_the_harness_names_machine_and_day_and_counts_within_its_trials():
    found = harness.checks()
    assert found
    for check in found:
        assert check.machine and check.state and date.fromisoformat(check.date)
        assert 0 <= check.false_alarms <= check.trials
        assert 0 <= check.found <= check.trials
        assert check.cost_percent > 0


def test_the_sentence_has_the_numbers_of_the_file(tmp_path):
    path = tmp_path / "checks.csv"
    path.write_text(
        "date,machine,state,step_ms,cost_percent,trials,false_alarms,slow_down_percent,found\n"
        "2026-02-02,a Mac,busy cores,20,0.5,40,3,7,31\n"
        "2026-01-01,another,idle cores,10,0.25,50,2,6,49\n"
    )
    early, late = harness.checks(path)
    assert early.machine == "another"
    assert str(late) == (
        "On busy cores (a Mac; 2026-02-02), timing costs 0.5 % of a step of 20 ms. Of 40 "
        "comparisons of a step with itself, 3 came out as a difference. A slow-down of 7 % that "
        "was planted was found in 31 of 40."
    )
