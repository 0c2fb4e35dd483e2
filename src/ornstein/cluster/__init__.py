"""More than one process or machine, on Dask."""
