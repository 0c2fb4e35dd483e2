"""A folder of Parquet files that Dask reads in parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ornstein.errors import FileError
from ornstein.interfaces.table.reading import PARQUET

if TYPE_CHECKING:
    import dask.dataframe
    import pandas

    from ornstein.interfaces.table.encoding import Encoding


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

    def __getitem__(self, name: str) -> pandas.Series:
        import pyarrow.dataset

        table = pyarrow.dataset.dataset(str(self.path), format="parquet").to_table(columns=[name])
        return table.to_pandas(ignore_metadata=True)[name]

    def encoded(self, encoding: Encoding) -> dask.dataframe.DataFrame:
        """A Dask data frame of the standardised features and the target, part by part on the
        workers.
        """
        import dask.dataframe

        frame = dask.dataframe.read_parquet(str(self.path))
        wanted = [column.name for column in encoding.columns] + [encoding.target]
        head = _encode(frame[wanted].head(2, npartitions=-1), encoding)
        return frame[wanted].map_partitions(_encode, encoding, meta=head.iloc[:0])


def _encode(part: pandas.DataFrame, encoding: Encoding) -> pandas.DataFrame:
    features = encoding.features(part.reset_index(drop=True))
    return features.assign(**{encoding.target: encoding.response(part)})
