"""Energy from simulated meters: the arithmetic, and every reason why there is no number."""

import sys
from types import SimpleNamespace

import pytest
import torch

from macgpu.measure import energy
from macgpu.measure.energy import Energy, NoMeter
from tests.measure.simulated import Clock

CPU = torch.device("cpu")


class Meter:
    """Counts the watts that it is told, over the simulated seconds."""

    source = "a simulated meter"

    def __init__(self, clock, watts):
        self.clock, self.watts = clock, watts

    def millijoules(self):
        return round(self.clock.now * self.watts * 1000)

    def celsius(self):
        return 61.0


def measure(meter, clock, idle, window_s=10.0):
    """Steps of 0.5 s, 8 samples each."""
    step = clock.step(lambda _: 0.5)
    return energy.measure(step, 8, CPU, meter, idle, window_s, clock=clock)


def idle_of(watts):
    clock = Clock()
    return energy.measure_idle(CPU, Meter(clock, watts), 10.0, clock, clock.sleep)


def test_joules_per_sample_gross_and_with_the_idle_power_taken_off():
    clock = Clock()
    measured = measure(Meter(clock, 300), clock, idle_of(100))
    assert measured.window_s == pytest.approx(10)
    assert measured.samples == 160
    assert measured.idle_w == pytest.approx(100)
    assert measured.gross_j == pytest.approx(3000)
    assert measured.gross_j_per_sample == pytest.approx(3000 / 160)
    assert measured.net_j_per_sample == pytest.approx(2000 / 160)
    assert measured.reason is None


def test_power_over_time_comes_from_the_raw_readings():
    clock = Clock()
    measured = measure(Meter(clock, 300), clock, idle_of(100))
    assert len(measured.trace_s) == len(measured.trace_j) == 21
    # Readings each half second: every second one is taken.
    assert [watts for _, watts in measured.watts()] == pytest.approx([300] * 10)
    assert measured.watts()[0][0] == pytest.approx(0.5)
    assert measured.celsius == (61.0,) * 20


def test_a_counter_that_jumps_is_not_drawn_as_a_power_that_does():
    # It moves by 240 J each 0.8 s, and is read each 0.1 s.
    moments = [tenth / 10 for tenth in range(101)]
    counted = [240 * (tenth // 8) for tenth in range(101)]
    window = energy.Energy("a meter", None, trace_s=tuple(moments), trace_j=tuple(counted))
    powers = [watts for _, watts in window.watts()]
    assert len(powers) == 10
    assert max(powers) < 2 * 300, "between two readings it seems to be 2400 W"
    assert sum(powers) / len(powers) == pytest.approx(288)


class Stuck(Meter):
    def millijoules(self):
        return 0


class Backwards(Meter):
    """Wraps around on the way, and ends above where it began."""

    def millijoules(self):
        counted = super().millijoules()
        return counted - 10**6 * (104 < self.clock.now < 106)


class Locked(Meter):
    def millijoules(self):
        raise PermissionError("must be root")


class Gone(Meter):
    def millijoules(self):
        raise OSError("the card has left the bus")


@pytest.mark.parametrize(
    ("meter", "reason"),
    [
        (Stuck, "did not move"),
        (Backwards, "ran backwards"),
        (Locked, "asks for a password"),
        (Gone, "could not be read"),
    ],
)
def test_a_counter_that_cannot_be_trusted_gives_no_number_but_its_reason(meter, reason):
    clock = Clock()
    measured = measure(meter(clock, 300), clock, idle_of(100))
    assert reason in measured.reason
    assert measured == Energy(Meter.source, measured.reason)
    # The same meter as a baseline spoils the step's figure too.
    clock = Clock()
    idle = energy.measure_idle(CPU, meter(clock, 100), 10.0, clock, clock.sleep)
    clock = Clock()
    assert reason in measure(Meter(clock, 300), clock, idle).reason


def test_a_window_shorter_than_ten_seconds_is_refused():
    clock = Clock()
    with pytest.raises(ValueError, match="at least 10 s"):
        measure(Meter(clock, 300), clock, idle_of(100), window_s=9.0)


def test_without_a_meter_nothing_runs_and_the_reason_is_kept():
    def never():
        raise AssertionError("ran")

    nothing = NoMeter("no meter here")
    idle = energy.measure_idle(CPU, nothing, 10.0)
    assert energy.measure(never, 8, CPU, nothing, idle, 10.0) == Energy(None, "no meter here")


def test_linux_has_no_meter_for_its_processor(monkeypatch):
    monkeypatch.setattr(energy.platform, "system", lambda: "Linux")
    assert energy.open_meter(CPU) == NoMeter("no energy meter for cpu on Linux")


def test_a_card_without_a_driver_is_a_reason():
    meter = energy.open_meter(torch.device("cuda"))
    if torch.cuda.is_available():
        assert meter.millijoules() > 0
    else:
        assert "did not open" in meter.reason


@pytest.fixture
def mac(monkeypatch):
    """A Mac whose chip reports what a test puts in."""
    counted = SimpleNamespace(
        cpu_total_mj=1000, gpu_mj=4000, gpu_sram_mj=None, dram_mj=500, ane_mj=0, extra_mj=10**9
    )
    monitor = SimpleNamespace(get_cumulative_energy=lambda: counted)
    monkeypatch.setattr(energy.platform, "system", lambda: "Darwin")
    module = SimpleNamespace(AppleEnergyMonitor=lambda: monitor)
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", module)
    return counted


def test_a_mac_counts_the_whole_chip(mac):
    assert energy.open_meter(torch.device("mps")).millijoules() == 5500


def test_a_chip_that_does_not_report_its_gpu_gives_no_number(mac):
    meter = energy.open_meter(torch.device("mps"))
    mac.gpu_mj = None
    clock = Clock()
    assert "no GPU energy" in measure(meter, clock, idle_of(1)).reason


def test_a_mac_without_the_package_says_so(monkeypatch):
    monkeypatch.setattr(energy.platform, "system", lambda: "Darwin")
    monkeypatch.setitem(sys.modules, "zeus_apple_silicon", None)
    assert "zeus_apple_silicon" in energy.open_meter(torch.device("mps")).reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        # As a library that does not load says it: with a folder, and so maybe a person's name.
        (
            ImportError("dlopen(/Users/me/meter.so): no", name="zeus_apple_silicon"),
            "ImportError, zeus_apple_silicon",
        ),
        (RuntimeError("Error { code: <-1> }\nat /Users/me"), "Error ? code: ?-1? ?"),
    ],
)
def test_why_a_meter_does_not_open_is_told_in_words_that_a_record_may_hold(
    mac, monkeypatch, error, reason
):
    def fail():
        raise error

    monkeypatch.setattr(sys.modules["zeus_apple_silicon"], "AppleEnergyMonitor", fail)
    found = energy.open_meter(torch.device("mps"))
    assert found == NoMeter(f"the energy meter did not open: {reason}")
