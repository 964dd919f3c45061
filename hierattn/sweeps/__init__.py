"""Many jobs: a function at every point of a grid, here or on a Dask cluster; resumable, results as xarray."""
