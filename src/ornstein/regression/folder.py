"""A folder of Parquet files that Dask reads in parts, as the table of a regression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ornstein.errors import FileError, InputError
from ornstein.model.model import Model
from ornstein.regression.columns import require_column
from ornstein.regression.design import Design
from ornstein.regression.reading import PARQUET
from ornstein.regression.regress import (
    Request,
    TablePredict,
    by_column,
    formula_of,
    require_no_groups,
    standardised,
)
from ornstein.regression.spec import Spec
from ornstein.regression.target import target_of

if TYPE_CHECKING:
    import pandas

TARGET = "(target)"


@dataclass(frozen=True)
class ParquetFolder:
    """A folder of Parquet files with the same columns, of which one column at most is held here at
    a time.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int

    @classmethod
    def at(cls, path: Path) -> ParquetFolder:
        try:
            import pyarrow
            import pyarrow.dataset
        except ImportError as error:
            raise FileError(
                f"{path} needs pyarrow to be read: pip install 'ornstein[tables]'"
            ) from error
        if not any(file.suffix.lower() in PARQUET for file in path.iterdir()):
            raise FileError(f"the folder {path} holds no .parquet file")
        try:
            dataset = pyarrow.dataset.dataset(str(path), format="parquet")
            rows = dataset.count_rows()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            raise FileError(
                f"{path} cannot be read as Parquet: {' '.join(str(error).split())}"
            ) from error
        if not rows:
            raise FileError(f"the files in {path} hold no rows")
        return cls(path, tuple(dataset.schema.names), rows)

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> pandas.Series:
        import pyarrow.dataset

        table = pyarrow.dataset.dataset(str(self.path), format="parquet").to_table(columns=[name])
        return table.to_pandas(ignore_metadata=True)[name]


def regression_on(
    request: Request, folder: ParquetFolder, glm: Callable[..., Any]
) -> tuple[Model, Spec]:
    """The Model of a formula on a folder: pass 1 here, a column at a time; pass 2 on Dask's
    workers, part by part.
    """
    import dask.dataframe

    formula, notes = formula_of(request, folder)
    require_no_groups(formula)
    assert formula.response is not None
    if formula.offsets or request.weights is not None or request.parts:
        raise InputError(
            "a folder of Parquet files takes no offsets, weights or formulas besides the first"
        )
    used = [*formula.response.column_names, *formula.column_names]
    for name in used:
        require_column(folder.columns, name, "the formula's")
        missing = int(folder[name].isna().sum())
        if missing:
            raise InputError(
                f"values are missing in {name!r} ({missing:,} of {len(folder):,} rows); fill them"
                " in or leave the rows or columns out"
            )
    target = target_of(formula.response, folder, request.family, request.link)
    design = Design.learned(formula, folder)
    spec = Spec(
        formula.text,
        formula.response.text,
        target.law.name,
        target.reason,
        target.classes,
        design,
        notes=notes,
    )
    encode = Encode(spec, formula.response.column_names[0])
    frame = dask.dataframe.read_parquet(str(folder.path))[list(dict.fromkeys(used))]
    head = encode(frame.head(2, npartitions=-1)).iloc[:0]
    encoded = frame.map_partitions(encode, meta=head)
    moments = encoded.std(ddof=0), encoded.mean()
    scales, means = (part.compute() for part in moments)
    scale = float(scales[TARGET]) if target.law.follows_response else 1.0
    spec = spec.with_numbers(means[:-1].tolist(), scales[:-1].tolist(), scale)
    classes = np.arange(float(len(target.classes))) if target.classes else None
    model = glm(
        encoded,
        TARGET,
        target.law,
        prior_precision=standardised(request.prior_precision, spec),
        priors=by_column(request.priors, spec),
        intercept=design.intercept and target.law.intercepts,
        classes=classes,
    )
    predict = TablePredict.of(model.predict.likelihood, spec)
    return model.replace(predict=predict), spec


@dataclass(frozen=True, eq=False)
class Encode:
    """One part of the folder as columns of the design and the target."""

    spec: Spec
    target: str

    def __call__(self, part: pandas.DataFrame) -> pandas.DataFrame:
        import pandas

        from ornstein.regression.columns import coded, numbers

        part = part.reset_index(drop=True)
        matrix = self.spec.design.build(part, len(part))
        matrix = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        frame = pandas.DataFrame(matrix, columns=list(self.spec.feature_names))
        series = part[self.target]
        classes = self.spec.classes
        values = coded(series).with_levels(classes).codes if classes else numbers(series)
        return frame.assign(**{TARGET: np.asarray(values, dtype=float)})
