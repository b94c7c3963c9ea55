"""Spectra and trends under SciPy's names: agreement with SciPy, sharded, differentiated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import ShardirError
from shardir.frontend.scipy.signal_windows import WINDOWS, make_window
from shardir.scipy import signal
from tests.error_assertions import first_line, raw
from tests.optional_dependencies import require

RNG = np.random.default_rng(0)
REAL: Any = RNG.standard_normal((2, 60)).astype(np.float32)
COMPLEX: Any = (REAL + 1j * RNG.standard_normal((2, 60))).astype(np.complex64)
PARAMETERS = {
    "gaussian": (3.0,), "general_cosine": ((0.3, 0.4, 0.3),), "general_gaussian": (1.5, 4.0),
    "general_hamming": (0.6,), "kaiser": (5.0,),
}  # fmt: skip


def scipy_signal() -> Any:
    require("jax")  # It installs SciPy.
    import scipy.signal

    return scipy.signal


def assert_as_in_scipy(name: str, *args: Any, **options: Any) -> None:
    found = getattr(signal, name)(*args, **options)
    expected = getattr(scipy_signal(), name)(*args, **options)
    pairs = zip(found, expected, strict=True) if type(found) is tuple else [(found, expected)]
    for x, y in pairs:
        assert np.asarray(x).dtype == (np.complex64 if y.dtype.kind == "c" else np.float32)
        np.testing.assert_allclose(x, y, 1e-3, 1e-4)


@pytest.mark.parametrize("x", [REAL, COMPLEX])
def test_values_are_those_of_scipy(x: Any) -> None:
    assert_as_in_scipy("detrend", x)
    assert_as_in_scipy("detrend", x.T, axis=0, bp=[10, 30])
    assert_as_in_scipy("detrend", x, type="constant")
    onesided = {"return_onesided": x is REAL}
    assert_as_in_scipy("stft", x, 2.0, nperseg=16, **onesided)
    assert_as_in_scipy(
        "stft", x.T, nperseg=15, noverlap=4, nfft=20, boundary="odd", axis=0, detrend="linear",
        **onesided,
    )  # fmt: skip
    assert_as_in_scipy("stft", x, nperseg=16, boundary=None, padded=False, **onesided)
    assert_as_in_scipy("csd", x, x[:, :50] * 2, 3.0, nperseg=15, scaling="spectrum", **onesided)
    assert_as_in_scipy("csd", x, x[::-1] * 2, nperseg=16, average="median", **onesided)
    assert_as_in_scipy("welch", x, nperseg=16, average="median", **onesided)
    assert_as_in_scipy("welch", x.T, window=("kaiser", 3.0), nperseg=15, axis=0, **onesided)


def test_the_inverse_restores_the_signal() -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (REAL, {}),
        (REAL, {"noverlap": 10, "window": "hamming"}),
        (COMPLEX, {}),
    ]
    for x, options in cases:
        onesided = x is REAL
        _, _, spectrum = signal.stft(x, nperseg=16, return_onesided=onesided, **options)
        _, found = signal.istft(spectrum, 2.0, nperseg=16, input_onesided=onesided, **options)
        np.testing.assert_allclose(found[:, :60], x, 1e-4, 1e-5)
    assert_as_in_scipy("istft", np.asarray(spectrum)[0], input_onesided=False)
    assert_as_in_scipy("istft", np.asarray(spectrum).transpose(1, 0, 2), input_onesided=False,
                       freq_axis=0, boundary=False, window="boxcar")  # fmt: skip


def test_windows_are_those_of_scipy() -> None:
    scipy = scipy_signal()
    for name in WINDOWS:
        window = (name, *PARAMETERS[name]) if name in PARAMETERS else name
        for size in (1, 2, 7, 16):
            expected = scipy.get_window(window, size)
            np.testing.assert_allclose(make_window("f", window, size), expected, 1e-6, 1e-6)


def test_short_signals_have_shorter_segments() -> None:
    with pytest.warns(
        UserWarning, match="nperseg of welch is 256, and the signal has 60 elements"
    ) as caught:
        frequencies, _ = signal.welch(REAL)
    assert caught[0].filename == __file__
    assert frequencies.shape == (31,)


def test_windows_with_gaps_lose_parts_of_the_signal() -> None:
    spectrum = np.ones((9, 4), np.complex64)
    with pytest.warns(UserWarning, match=r"^istft cannot recover the whole signal, ") as caught:
        signal.istft(spectrum, nperseg=16, noverlap=0, boundary=False)
    assert [each.filename for each in caught] == [__file__]


def test_a_function_removes_the_trend() -> None:
    options: Any = {"nperseg": 16, "axis": 0}
    _, _, found = signal.stft(REAL.T, detrend=lambda x: x - x.mean(0, keepdims=True), **options)
    _, _, expected = signal.stft(REAL.T, detrend="constant", **options)
    np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_signals_may_be_sharded_mapped_and_differentiated() -> None:
    x: Any = RNG.standard_normal((8, 64)).astype(np.float32)

    def power(x: Any) -> Any:
        return signal.welch(x, nperseg=16)[1]

    expected = power(x)
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("x",)), sd.P("x"))
        placed = sd.device_put(x, sharding)
        program = sd.jit(power).lower(placed).compile()
        assert program.collectives() == []
        np.testing.assert_allclose(sd.jit(power)(placed), expected, 1e-5, 1e-6)
    np.testing.assert_allclose(sd.vmap(power)(x), expected, 1e-5, 1e-6)
    direction = RNG.standard_normal(x.shape).astype(np.float32)
    gradient = sd.grad(lambda x: signal.istft(signal.stft(x, nperseg=16)[2])[1].sum())(x)
    np.testing.assert_allclose(gradient[:, 8:-8], np.ones((8, 48)), 1e-4, 1e-4)
    slope = np.sum(np.asarray(sd.grad(lambda x: power(x).sum())(x)) * direction)
    change = float((power(x + 1e-2 * direction) - power(x - 1e-2 * direction)).sum()) / 2e-2
    np.testing.assert_allclose(slope, change, 1e-2)


FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: signal.detrend(REAL, type="cubic"),
     "detrend removes 'constant' or 'linear' trends, not 'cubic'"),
    (lambda: signal.detrend(REAL, bp=61),
     "bp of detrend is 61; an axis of 60 elements has indices from 0 to 60"),
    (lambda: signal.detrend(REAL, overwrite_data=raw(True)),
     "detrend cannot overwrite its operand; leave out overwrite_data"),
    (lambda: signal.stft(REAL, nperseg=8, boundary="mirror"),
     "the boundary of stft is 'mirror'; it is one of 'even', 'odd', 'constant', 'zeros', None"),
    (lambda: signal.welch(REAL, nperseg=8, scaling="power"),
     "the scaling of welch is 'power'; it is 'density' or 'spectrum'"),
    (lambda: signal.welch(REAL, nperseg=8, average="mode"),
     "the average of welch is 'mode'; it is 'mean' or 'median'"),
    (lambda: signal.welch(np.zeros((2, 0))),
     "welch takes signals with elements along axis -1, got shape (2, 0)"),
    (lambda: signal.welch(REAL, nperseg=8, noverlap=8),
     "noverlap of welch is 8; it is smaller than the 8 elements of a segment"),
    (lambda: signal.welch(REAL, nperseg=8, nfft=7),
     "nfft of welch is 7; it is at least the 8 elements of a segment"),
    (lambda: signal.welch(REAL, nperseg=0), "nperseg of welch is at least 1, got 0"),
    (lambda: signal.welch(REAL, window=np.ones(61)),
     "the window of welch has 61 elements, and the signal has 60"),
    (lambda: signal.welch(REAL, window=np.ones((2, 2))),
     "the window of welch is a vector, got shape (2, 2)"),
    (lambda: signal.welch(REAL, window=np.ones(8), nperseg=9),
     "nperseg of welch is 9, and the window has 8 elements"),
    (lambda: signal.welch(REAL, window=np.ones(8) * 1j),
     "the window of welch is complex; it has real elements"),
    (lambda: signal.welch(REAL, window="chebwin", nperseg=8),
     "welch has no window 'chebwin'; it has " + ", ".join(map(repr, WINDOWS)) + ", and takes "
     "arrays of the elements of any other window"),
    (lambda: signal.welch(REAL, window="kaiser", nperseg=8),
     "the window 'kaiser' of welch does not have the parameters of 'kaiser'; write ('kaiser', "
     "beta) with real numbers"),
    (lambda: signal.welch(REAL, window=("hann", 3), nperseg=8),
     "the window ('hann', 3) of welch has wrong parameters; write 'hann'"),
    (lambda: signal.stft(REAL[:, :4], nperseg=4, boundary="even", window=np.ones(4), nfft=8,
                         detrend="square"),
     "stft removes 'constant' or 'linear' trends, not 'square'"),
    (lambda: signal.welch(1.0), "axis -1 is out of range for an array of rank 0"),
    (lambda: signal.istft(REAL[0]), "istft takes at least two dimensions, got shape (60,)"),
    (lambda: signal.istft(REAL, time_axis=0), "freq_axis and time_axis of istft are equal"),
    (lambda: signal.istft(REAL, nperseg=9),
     "nperseg of istft is 9; it is at most nfft, 2, and larger than noverlap, 4"),
    (lambda: signal.istft(REAL, window=np.ones(5)),
     "the window of istft has shape (5,), and segments have 2 elements"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message


def test_gaps_between_windows() -> None:
    with pytest.warns(UserWarning, match="istft cannot recover the whole signal"):
        signal.istft(np.ones((9, 5), np.complex64), noverlap=0)
