"""Energy of a training step, from the meter that the machine has, or the reason why there is none.

The meters are not one scale. Apple's is an estimate of the chip (CPU, GPU, their memory, the neural
engine) from its own model; NVIDIA's is a counter of the card's board. Neither is the wall socket.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from macgpu.device import synchronize
from macgpu.measure.fields import Count, NotNegative, Positive, fit
from macgpu.measure.timing import Clock, Step, time_block

MINIMUM_WINDOW_S = 10.0
"""A shorter window is of the size of the meters' own update interval and is refused."""

READABLE_S = 1.0
"""Power is read over at least so long, several times a meter's own update interval."""

WINDOWS = {"smoke": 10.0, "quick": 10.0, "full": 30.0}
"""Seconds, by profile."""


class Meter(Protocol):
    """A counter of energy that only rises."""

    source: str
    """What is read, for a caption."""

    def millijoules(self) -> int:
        """Energy since some fixed moment.

        Raises:
            PermissionError: where the sensor asks for a password.
        """

    def celsius(self) -> float | None:
        """The temperature of what is measured, where the meter knows it."""


@dataclass(frozen=True)
class NoMeter:
    """There is no energy to report, for this reason."""

    reason: str


@dataclass(frozen=True)
class Energy:
    """Energy of a step over one window. All numbers are ``None`` where ``reason`` says why."""

    source: str | None
    reason: str | None
    window_s: Positive | None = None
    samples: Count | None = None
    """Training samples, such as images, processed in the window."""
    gross_j: Positive | None = None
    """All that the meter counted in the window."""
    idle_w: NotNegative | None = None
    """Power of the machine at rest, measured over a window as long before."""
    gross_j_per_sample: Positive | None = None
    net_j_per_sample: float | None = None
    """The idle power over the window subtracted."""
    trace_s: tuple[NotNegative, ...] = ()
    """Raw samples: the moments of the readings, from the start of the window."""
    trace_j: tuple[NotNegative, ...] = ()
    """And the energy counted until then."""
    celsius: tuple[float, ...] = ()
    """And the temperatures, where the meter has any."""

    def watts(self) -> list[tuple[float, float]]:
        """Power over time: the middle of each interval between readings, and its mean power.

        Readings nearer than :data:`READABLE_S` to the last one are passed over: a meter counts in
        jumps, and between two jumps it would seem to stand still.
        """
        readings: list[tuple[float, float]] = []
        for second, joules in zip(self.trace_s, self.trace_j, strict=True):
            if not readings or second - readings[-1][0] >= READABLE_S:
                readings.append((second, joules))
        return [
            ((s + t) / 2, (after - before) / (t - s))
            for (s, before), (t, after) in zip(readings, readings[1:], strict=False)
        ]


def open_meter(device: torch.device) -> Meter | NoMeter:
    """The meter for work on this device."""
    try:
        if device.type == "cuda":
            return _Nvml()
        if platform.system() == "Darwin":
            return _Apple()
    except ImportError as error:
        # Its message may hold a folder's name, and a record names nobody.
        return NoMeter(f"the energy meter did not open: {type(error).__name__}, {error.name}")
    except (OSError, RuntimeError) as error:
        return NoMeter(f"the energy meter did not open: {_first_line(error)}")
    return NoMeter(f"no energy meter for {device.type} on {platform.system()}")


def measure_idle(
    device: torch.device,
    meter: Meter | NoMeter,
    window_s: float,
    clock: Clock = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Energy:
    """Measure the machine at rest, for the baseline of every step measured after it."""

    def rest() -> None:
        sleep(1.0)

    return _measure(rest, device, meter, window_s, 1, clock)


def measure(
    step: Step,
    batch_size: int,
    device: torch.device,
    meter: Meter | NoMeter,
    idle: Energy,
    window_s: float,
    steps_per_block: int = 1,
    clock: Clock = time.perf_counter,
) -> Energy:
    """Measure a step over one window.

    Args:
        step: warmed up; one call processes ``batch_size`` samples.
        idle: from :func:`measure_idle`, of the same machine just before.
        window_s: length of the window in seconds, at least :data:`MINIMUM_WINDOW_S`.
        steps_per_block: the device is waited for, and the meter read, after so many.

    Raises:
        ValueError: for a window that is too short to be trusted.
    """
    busy = _measure(step, device, meter, window_s, steps_per_block, clock)
    if busy.reason or idle.reason:
        return Energy(busy.source, busy.reason or idle.reason)
    samples = (len(busy.trace_s) - 1) * steps_per_block * batch_size
    idle_w = idle.gross_j / idle.window_s
    return replace(
        busy,
        samples=samples,
        idle_w=idle_w,
        gross_j_per_sample=busy.gross_j / samples,
        net_j_per_sample=(busy.gross_j - idle_w * busy.window_s) / samples,
    )


def _measure(
    step: Step,
    device: torch.device,
    meter: Meter | NoMeter,
    window_s: float,
    steps_per_block: int,
    clock: Clock,
) -> Energy:
    """What the meter counts in a window, the device idle at both ends, a reading each block."""
    if window_s < MINIMUM_WINDOW_S:
        raise ValueError(
            f"an energy window lasts at least {MINIMUM_WINDOW_S:g} s, not {window_s:g}"
        )
    if isinstance(meter, NoMeter):
        return Energy(None, meter.reason)
    moments, counted, celsius = [0.0], [0], []
    try:
        synchronize(device)
        start_mj, start_s = meter.millijoules(), clock()
        while moments[-1] < window_s:
            time_block(step, steps_per_block, device, clock)
            counted.append(meter.millijoules() - start_mj)
            moments.append(clock() - start_s)
            celsius.append(meter.celsius())
    except PermissionError as error:
        return Energy(meter.source, f"the sensor asks for a password: {_first_line(error)}")
    except OSError as error:
        return Energy(meter.source, f"the sensor could not be read: {_first_line(error)}")
    if any(after < before for before, after in zip(counted, counted[1:], strict=False)):
        return Energy(meter.source, "the energy counter ran backwards")
    if counted[-1] == 0:
        return Energy(meter.source, "the energy counter did not move")
    return Energy(
        source=meter.source,
        reason=None,
        window_s=moments[-1],
        gross_j=counted[-1] / 1000,
        trace_s=tuple(moments),
        trace_j=tuple(mj / 1000 for mj in counted),
        celsius=() if None in celsius else tuple(celsius),
    )


class _Nvml:
    """NVIDIA's management library: total energy since the driver was loaded, in millijoules."""

    source = "NVML total energy counter of the card"

    def __init__(self) -> None:
        import pynvml

        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._card = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.millijoules()
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error

    def millijoules(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._card)
        except self._nvml.NVMLError_NoPermission as error:
            raise PermissionError(str(error)) from error
        except self._nvml.NVMLError as error:
            raise OSError(str(error)) from error

    def celsius(self) -> float | None:
        try:
            kind = self._nvml.NVML_TEMPERATURE_GPU
            return float(self._nvml.nvmlDeviceGetTemperature(self._card, kind))
        except self._nvml.NVMLError:
            return None


class _Apple:
    """zeus-apple-silicon: the chip's own estimate from IOReport, in millijoules; no password."""

    source = "IOReport energy model of the chip (zeus-apple-silicon)"
    parts = ("cpu_total_mj", "gpu_mj", "gpu_sram_mj", "dram_mj", "ane_mj")

    def __init__(self) -> None:
        from zeus_apple_silicon import AppleEnergyMonitor

        self._monitor = AppleEnergyMonitor()

    def millijoules(self) -> int:
        counted = self._monitor.get_cumulative_energy()
        values = [getattr(counted, part) for part in self.parts]
        # A chip leaves out what it cannot tell; without the GPU there is nothing to report.
        if counted.gpu_mj is None:
            raise OSError("this chip reports no GPU energy")
        return sum(value for value in values if value is not None)

    def celsius(self) -> float | None:
        return None


def _first_line(error: BaseException) -> str:
    return fit((str(error) or type(error).__name__).splitlines()[0])
